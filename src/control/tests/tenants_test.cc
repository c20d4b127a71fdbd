// Tests of a user's limits, the order between users, cancelled operations, and the answers to polls meanwhile.
#include <atomic>
#include <chrono>
#include <future>
#include <utility>
#include <vector>

#include "control/accounts/quota.h"
#include "control/tests/plane.h"
#include "control/workers/model_backend.h"
#include "telemetry/testing/recorded_metrics.h"

namespace tuft::control {
namespace {

class Tenants : public PlaneTest {
 protected:
  SamplerId sampler_of(const UserId& user) { return *try_sampler(session(user), user, 0, model); }
  Error refusal_of_sample(const SamplerId& sampler, const UserId& user) {
    auto submitted = plane().sample(user, sample_request(sampler), no_trace);
    return submitted.ok() ? internal_error("it was accepted") : submitted.error();
  }
  // Returns the number of answers that the worker gives until the future has finished.
  int answers_until(const UserId& user, const RequestId& request) {
    int answers = 0;
    while (pending(user, request) && worker().answer_next()) ++answers;
    return answers;
  }
};

TEST_F(Tenants, SamplesInFlightAreLimitedForEachUser) {
  config().limits.samples_in_flight_per_user_max = 3;
  boot();
  const telemetry::testing::RecordedMetrics metrics;
  const SamplerId sampler = sampler_of(alice);
  const SamplerId other = sampler_of(alice);
  const SamplerId bobs = sampler_of(bob);
  worker().hold_answers(true);
  const RequestId first = sample(sampler, alice, 1);
  sample(sampler, alice, 2);
  sample(other, alice, 3);
  const Error error = refusal_of_sample(other, alice);
  EXPECT_EQ(error.code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(error.reason, "samples_in_flight_per_user_max");
  EXPECT_NE(error.message.find("limits.samples_in_flight_per_user_max"), std::string::npos) << error.message;
  EXPECT_EQ(metrics.counter("tuft.quota.refusals", {{"limit", "samples_in_flight"}}), 1);
  // A repeated sample does not count again.
  EXPECT_EQ(sample(sampler, alice, 1), first);
  sample(bobs, bob);
  worker().answer_next();
  sample(sampler, alice, 4);
}

TEST_F(Tenants, EachQuotaNamesItselfAndItsKey) {
  config().limits.sessions_per_user_max = 1;
  config().limits.runs_per_user_max = 0;
  config().limits.samplers_per_user_max = 0;
  boot();
  const telemetry::testing::RecordedMetrics metrics;
  const SessionId s = session(alice);
  EXPECT_EQ(plane().create_session(alice, {}).error().reason, "sessions_per_user_max");
  EXPECT_EQ(plane().create_model(alice, create_request(s), no_trace).error().reason, "runs_per_user_max");
  EXPECT_EQ(try_sampler(s, alice, 0, model).error().reason, "samplers_per_user_max");
  for (const char* limit : {"sessions", "runs", "samplers"}) {
    EXPECT_EQ(metrics.counter("tuft.quota.refusals", {{"limit", limit}}), 1) << limit;
  }
  for (size_t i = 0; i < kQuotas; ++i) {
    const Error error = over_quota(static_cast<Quota>(i), "you have many", "have fewer");
    EXPECT_EQ(error.code, ErrorCode::kResourceExhausted);
    EXPECT_NE(error.message.find(quota_limit(static_cast<Quota>(i))), std::string::npos) << error.message;
  }
}

TEST_F(Tenants, OneUsersQueueOfSamplesDelaysAnothersByNoMoreThanWhatIsInFlight) {
  boot();
  const SamplerId alices = sampler_of(alice);
  const SamplerId bobs = sampler_of(bob);
  worker().hold_answers(true);
  RequestId last;
  for (int i = 1; i <= 5000; ++i) last = sample(alices, alice, i);
  const auto in_flight = static_cast<int>(worker().held());
  EXPECT_LE(in_flight, kSamplingSlots);
  const RequestId bobs_one = sample(bobs, bob);
  // The samples in flight, a turn of alice, and bob's own sample.
  EXPECT_LE(answers_until(bob, bobs_one), in_flight + 64);
  EXPECT_TRUE(pending(alice, last));
  worker().answer_all();
  value<ProtobufResult>(alice, last);
}

TEST_F(Tenants, ASampleCountsAsManyTimesAsItHasSequences) {
  boot();
  const SamplerId sampler = sampler_of(alice);
  worker().hold_answers(true);
  for (int i = 0; i < 20; ++i) {
    Sample request = sample_request(sampler);
    request.num_samples = 100;
    ASSERT_TRUE(plane().sample(alice, request, no_trace).ok());
  }
  EXPECT_EQ(worker().held(), static_cast<size_t>(kSamplingSlots / 100));
  worker().answer_all();
  EXPECT_EQ(worker().calls_of("sample").size(), 20U);
}

// Two requests of alice take 256 slots, and the third is too large for the rest, until their last token is drawn.
TEST_F(Tenants, AFirstSampleIsSentAtOnceHoweverLongAnothersRun) {
  boot();
  const SamplerId alices = sampler_of(alice);
  const SamplerId bobs = sampler_of(bob);
  worker().hold_answers(true);
  for (int i = 0; i < 5; ++i) {
    Sample request = sample_request(alices);
    request.num_samples = 128;
    ASSERT_TRUE(plane().sample(alice, request, no_trace).ok());
  }
  EXPECT_EQ(worker().held(), 2U);
  std::vector<RequestId> bobs_own;
  for (int i = 0; i < 100; ++i) bobs_own.push_back(sample(bobs, bob));
  EXPECT_EQ(worker().held(), 102U);
  for (const RequestId& request : bobs_own) EXPECT_TRUE(peek(bob, request)->at_worker);
  worker().answer_all();
  EXPECT_EQ(worker().calls_of("sample").size(), 105U);
}

TEST_F(Tenants, AWorkersDeathFreesTheSlotsOfSamplesThatWereSentOutOfTurn) {
  const auto [s, run] = boot_with_session_and_run();
  const auto path = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "n")).path;
  await_files(alice, path);
  const SamplerId alices[] = {sampler_of(alice), *try_sampler(s, alice, 1, "", path)};
  const SamplerId bobs = sampler_of(bob);
  for (int death = 0; death < 3; ++death) {
    worker().clear_calls();
    worker().hold_answers(true);
    std::vector<std::pair<UserId, RequestId>> all;
    for (int i = 0; i < 6; ++i) {
      Sample request = sample_request(alices[i % 2]);
      request.num_samples = 128;
      all.emplace_back(alice, plane().sample(alice, request, no_trace)->request);
    }
    for (int i = 0; i < 200; ++i) all.emplace_back(bob, sample(bobs, bob));
    EXPECT_EQ(worker().held(), 2U + kSamplingSlots / 2) << "bob has half of the slots";
    worker().die();
    EXPECT_EQ(worker().held(), 0U);
    worker().start();
    worker().stop_holding();
    for (const auto& [user, request] : all) {
      const auto snapshot = wait(user, request);
      ASSERT_TRUE(snapshot.ok());
      EXPECT_NE(snapshot->state, FutureSnapshot::State::kPending);
    }
    // As many as there are slots, and no more, are at the worker again.
    worker().hold_answers(true);
    for (int i = 0; i <= kSamplingSlots; ++i) sample(bobs, bob);
    EXPECT_EQ(worker().held(), static_cast<size_t>(kSamplingSlots));
    worker().stop_holding();
  }
}

TEST_F(Tenants, OneUsersRunsDoNotKeepAnothersFromTheWorker) {
  config().limits.runs_per_user_max = 100;
  config().supported_models[0].train_batch_tokens = 160;
  constexpr size_t kSlots = 20;  // 4 passes of 160 tokens, 32 each
  const SessionId s = boot_with_session();
  std::vector<RunId> runs;
  for (int i = 0; i < 60; ++i) runs.push_back(create_model(s, alice, i));
  const RunId bobs = create_model(bob);
  worker().clear_calls();
  worker().hold_answers(true);
  for (int step = 1; step <= 5; ++step) {
    for (const RunId& run : runs) optim_step(run, alice, step);
  }
  EXPECT_EQ(worker().held(), kSlots);
  const RequestId bobs_step = optim_step(bobs, bob, 1);
  EXPECT_LE(answers_until(bob, bobs_step), static_cast<int>(3 * kSlots));
  worker().answer_all();
  EXPECT_EQ(worker().calls_of("optim_step").size(), 301U);
  for (const RunId& run : runs) EXPECT_EQ(worker().weights_of(run.str()), 5);
}

TEST_F(Tenants, ARunIsNotOvertakenByItself) {
  const RunId run = boot_with_run();
  worker().clear_calls();
  worker().hold_answers(true);
  for (int i = 1; i <= 100; ++i) forward_backward(run, alice, i, "n" + std::to_string(i));
  EXPECT_EQ(worker().held(), 1U);
  worker().answer_all();
  const auto calls = worker().calls_of("forward_backward");
  ASSERT_EQ(calls.size(), 100U);
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i], "forward_backward " + run.str() + " n" + std::to_string(i + 1));
  }
}

TEST_F(Tenants, ACancelledSampleStopsWhereverItIs) {
  boot();
  const SamplerId sampler = sampler_of(alice);
  worker().hold_answers(true);
  const RequestId at_worker = sample(sampler, alice);
  ASSERT_EQ(worker().held(), 1U);
  EXPECT_EQ(plane().cancel_future(bob, at_worker).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(plane().cancel_future(alice, at_worker).ok());
  EXPECT_EQ(worker().held(), 0U);
  EXPECT_EQ(failure(alice, at_worker).code, ErrorCode::kCancelled);
  EXPECT_TRUE(plane().cancel_future(alice, at_worker).ok());

  for (int i = 0; i < kSamplingSlots; ++i) sample(sampler, alice);
  const RequestId waiting = sample(sampler, alice);
  ASSERT_TRUE(plane().cancel_future(alice, waiting).ok());
  EXPECT_EQ(failure(alice, waiting).code, ErrorCode::kCancelled);
  worker().answer_all();
  EXPECT_EQ(worker().calls_of("sample").size(), 1U + kSamplingSlots);
}

TEST_F(Tenants, CancelledTrainingIsSkippedAndUsesUpItsNumber) {
  const RunId run = boot_with_run();
  worker().clear_calls();
  worker().hold_answers(true);
  const RequestId first = optim_step(run, alice, 1);
  const RequestId second = optim_step(run, alice, 2);
  const RequestId third = optim_step(run, alice, 3);
  ASSERT_TRUE(plane().cancel_future(alice, first).ok());
  ASSERT_TRUE(plane().cancel_future(alice, second).ok());
  EXPECT_EQ(failure(alice, second).code, ErrorCode::kCancelled);
  worker().answer_all();
  // The worker had begun the first.
  value<OptimStepResult>(alice, first);
  value<OptimStepResult>(alice, third);
  EXPECT_EQ(worker().weights_of(run.str()), 2);
}

TEST_F(Tenants, ACancelIsTheLastWordAfterARestartToo) {
  keep_state();
  boot();
  const SamplerId sampler = sampler_of(alice);
  worker().hold_answers(true);
  const RequestId request = sample(sampler, alice, 1);
  ASSERT_TRUE(plane().cancel_future(alice, request).ok());
  EXPECT_EQ(failure(alice, request).code, ErrorCode::kCancelled);
  worker().answer_all();
  close();
  boot();
  EXPECT_EQ(failure(alice, request).code, ErrorCode::kCancelled);
}

TEST_F(Tenants, PollsAreToldWhyTheyWait) {
  config().limits.samples_in_flight_per_user_max = 2 * kSamplingSlots;
  boot();
  const SamplerId sampler = sampler_of(alice);
  const SamplerId bobs = sampler_of(bob);
  worker().hold_answers(true);
  const RequestId at_worker = sample(sampler, alice);
  EXPECT_EQ(peek(alice, at_worker)->queue_state, QueueState::kActive);
  for (int i = 1; i < kSamplingSlots; ++i) sample(sampler, alice);
  for (int i = 0; i < kSamplingSlots / 2; ++i) sample(bobs, bob);  // bob's part of the slots
  const RequestId waiting = sample(bobs, bob);
  EXPECT_EQ(peek(alice, at_worker)->queue_state, QueueState::kActive);
  EXPECT_EQ(peek(bob, waiting)->queue_state, QueueState::kPausedCapacity);
  EXPECT_NE(peek(bob, waiting)->queue_reason.find(model), std::string::npos);
  RequestId last;
  for (int i = 0; i < kSamplingSlots; ++i) last = sample(sampler, alice);
  EXPECT_EQ(peek(alice, last)->queue_state, QueueState::kPausedRateLimit);
  EXPECT_NE(peek(alice, last)->queue_reason.find("limits.samples_in_flight_per_user_max"), std::string::npos);
  worker().die();
  const RequestId later = sample(bobs, bob);
  EXPECT_EQ(peek(bob, later)->queue_state, QueueState::kPausedCapacity);
  EXPECT_NE(peek(bob, later)->queue_reason.find("starting"), std::string::npos);
}

TEST_F(Tenants, TenThousandPollsAreAnsweredOnceEach) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  const RequestId request = optim_step(run, alice, 1);
  std::atomic<int> answered = 0;
  std::vector<ControlPlane::WaitId> waits;
  for (int i = 0; i < 10'000; ++i) {
    waits.push_back(plane().wait_future(alice, request, [&](const Result<FutureSnapshot>&) { ++answered; }));
  }
  for (size_t i = 0; i < waits.size(); i += 2) plane().end_wait(waits[i]);
  EXPECT_EQ(answered, 5000);
  worker().answer_all();
  EXPECT_EQ(answered, 10'000);
}

TEST_F(Tenants, AModelWhoseCreationIsCancelledTakesNoPlace) {
  config().limits.runs_per_user_max = 1;
  boot(false);
  const SessionId s = session(alice);
  const RequestId cancelled = submit_create(s, alice, 0);
  const RunId run(s.str() + ":train:0");
  const RequestId later = optim_step(run, alice, 1);
  ASSERT_TRUE(plane().cancel_future(alice, cancelled).ok());
  EXPECT_EQ(failure(alice, cancelled).code, ErrorCode::kCancelled);
  worker().start();
  EXPECT_EQ(failure(alice, later).code, ErrorCode::kCancelled);
  EXPECT_FALSE(plane().get_info(alice, run).ok());
  create_model(s, alice, 1);
  EXPECT_EQ(worker().calls_of("create_adapter").size(), 1U);
}

// Otherwise a user who ends sessions faster than their runs are saved could have any number of adapters at the worker.
TEST_F(Tenants, ARunWhoseSessionHasEndedCountsUntilItIsGone) {
  config().limits.runs_per_user_max = 1;
  const auto [ended, run] = boot_with_session_and_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  worker().hold_answers(true);
  ASSERT_TRUE(plane().end_session(alice, ended, {}).ok());
  const CreateModel request = create_request(session(alice));
  const auto refused = plane().create_model(alice, request, no_trace);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "runs_per_user_max");
  EXPECT_NE(refused.error().message.find("try again"), std::string::npos) << refused.error().message;
  worker().stop_holding();
  sweep_until([&] { return plane().create_model(alice, request, no_trace).ok(); });
  value<CreateModelResult>(alice, plane().create_model(alice, request, no_trace)->request);
  EXPECT_EQ(worker().calls_of("save_state").size(), 1U);
  EXPECT_EQ(worker().adapters(), 1U);
}

TEST_F(Tenants, ARepeatedRequestForAModelEndsOneIdleSessionOnly) {
  config().limits.runs_per_user_max = 2;
  boot();
  for (int i = 0; i < 2; ++i) value<OptimStepResult>(alice, optim_step(create_model(alice), alice, 1));
  advance(61 * kSecond);
  const CreateModel request = create_request(session(alice));
  worker().hold_answers(true);
  for (int i = 0; i < 3; ++i) {
    const auto refused = plane().create_model(alice, request, no_trace);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().reason, "runs_per_user_max");
  }
  worker().stop_holding();
  sweep_until([&] { return plane().create_model(alice, request, no_trace).ok(); });
  value<CreateModelResult>(alice, plane().create_model(alice, request, no_trace)->request);
  EXPECT_EQ(worker().adapters(), 2U);
  EXPECT_EQ(plane().catalog().sessions(alice, {}).items.size(), 2U);
}

TEST_F(Tenants, AnIdleSessionWhoseWorkerIsAwayDoesNotEndInVain) {
  config().limits.runs_per_user_max = 1;
  const auto [idle, run] = boot_with_session_and_run();
  advance(61 * kSecond);
  const CreateModel request = create_request(session(alice));
  worker().die();
  EXPECT_EQ(plane().create_model(alice, request, no_trace).error().reason, "runs_per_user_max");
  EXPECT_TRUE(plane().get_info(alice, run).ok());
  worker().start();
  sweep_until([&] { return plane().create_model(alice, request, no_trace).ok(); });
  EXPECT_EQ(plane().get_info(alice, run).error().reason, "session_ended");
}

// Otherwise a crash at this moment would lose an answer that the client has.
TEST_F(Tenants, ARepetitionIsDurableNoSoonerThanTheFirst) {
  keep_state();
  const RunId run = boot_with_run();
  std::promise<Status> answer;
  auto kept = answer.get_future();
  contents().hold(true);
  const RequestId first = optim_step(run, alice, 1);
  EXPECT_EQ(optim_step(run, alice, 1), first);
  plane().when_durable([&](Status status) { answer.set_value(std::move(status)); });
  EXPECT_NE(kept.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  contents().hold(false);
  value<OptimStepResult>(alice, first);
  EXPECT_TRUE(kept.get().ok());
}

}  // namespace
}  // namespace tuft::control
