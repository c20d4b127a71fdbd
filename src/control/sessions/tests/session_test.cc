// Tests of how sessions, and the objects that belong to them, end.
#include <chrono>
#include <thread>

#include "control/sampling/sampling_controller.h"
#include "control/tests/plane.h"
#include "telemetry/testing/recorded_metrics.h"

namespace tuft::control {
namespace {

class SessionEndings : public PlaneTest {
 protected:
  // Advances the clock by one second more than the allowed silence.
  void be_silent() {
    advance((config().limits.session_idle_seconds + 1) * kSecond);
    settle();
  }
  // Runs the sweeps that the end of a session needs, including its files.
  void settle() {
    for (int i = 0; i < 5; ++i) {
      plane().sweep();
      advance(kSecond);
    }
  }
  bool gone(const SessionId& session, const UserId& user) {
    const Status alive = plane().heartbeat(user, session);
    return !alive.ok() && (alive.error().code == ErrorCode::kNotFound || alive.error().code == ErrorCode::kGone);
  }
  // Returns true once no run is at the worker; waits for the files, at most 20 s, and moves the clock by `step` each
  // time.
  bool run_leaves_the_worker(Nanos step = kSecond / 10) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (worker().adapters() > 0 && std::chrono::steady_clock::now() < end) {
      advance(step);
      std::this_thread::yield();
    }
    return worker().adapters() == 0;
  }
  bool ready_becomes(bool ready) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (plane().ready() != ready && std::chrono::steady_clock::now() < end) advance(kMillisecond);
    return plane().ready() == ready;
  }
  std::string newest(const RunId& run) { return "tinker://" + run.str() + "/weights/expired-"; }
};

TEST_F(SessionEndings, SilenceEndsASessionUnlessThereAreSignsOfLife) {
  boot();
  const telemetry::testing::RecordedMetrics metrics;
  const SessionId quiet = session(alice);
  const SessionId beating = session(alice);
  const SessionId working = session(alice);
  const RunId run = create_model(working, alice);
  for (int i = 1; i <= 5; ++i) {
    advance(1000 * kSecond);
    EXPECT_TRUE(plane().heartbeat(alice, beating).ok());
    optim_step(run, alice, i);
  }
  settle();
  EXPECT_TRUE(gone(quiet, alice));
  EXPECT_TRUE(plane().heartbeat(alice, beating).ok());
  EXPECT_TRUE(plane().heartbeat(alice, working).ok());
  EXPECT_EQ(metrics.counter("tuft.sessions.expired", {{"reason", "silent"}}), 1);
}

TEST_F(SessionEndings, AChangedRunIsSavedFirstAndItsErrorNamesTheCheckpoint) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  be_silent();
  ASSERT_TRUE(run_leaves_the_worker());
  const auto saves = worker().calls_of("save_state");
  EXPECT_EQ(saves.size(), 1U);
  const Error error = try_forward_backward(run, alice, 2).error();
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_NE(error.message.find("nothing was heard of it"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find(newest(run)), std::string::npos) << error.message;
  // Other users do not learn it.
  EXPECT_EQ(try_forward_backward(run, bob, 2).error().message.find("expired-"), std::string::npos);

  const size_t at = error.message.find("tinker://");
  const std::string path = error.message.substr(at, error.message.find(':', at + 9 + run.str().size()) - at);
  const RunId fresh = create_model(session(alice), alice);
  value<LoadWeightsResult>(alice, load(fresh, alice, 1, path));
  EXPECT_EQ(worker().weights_of(fresh.str()), 1);
}

TEST_F(SessionEndings, WhatIsSavedAtTheEndExpiresUnlessThatIsTurnedOff) {
  for (const int64_t ttl : {int64_t{86'400}, int64_t{0}}) {
    config().limits.expired_checkpoint_ttl_seconds = ttl;
    const RunId run = boot_with_run();
    value<OptimStepResult>(alice, optim_step(run, alice, 1));
    be_silent();
    ASSERT_TRUE(run_leaves_the_worker());
    const auto listed = plane().catalog().training_run(alice, run, Scope::kOwned);
    ASSERT_TRUE(listed.ok() && listed->last_checkpoint);
    const std::optional<std::string> expires = listed->last_checkpoint->expires_at;
    ASSERT_EQ(expires.has_value(), ttl > 0);
    if (!expires) continue;
    const Nanos saved = parse_iso_time(listed->last_checkpoint->created_at).value_or(0);
    // run_leaves_the_worker() moves the clock between the two times.
    EXPECT_NEAR(to_seconds(parse_iso_time(*expires).value_or(0) - saved), static_cast<double>(ttl), 60);
  }
}

TEST_F(SessionEndings, ARunThatHasNotChangedIsNotSaved) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  value<SaveWeightsResult>(alice, save(run, alice, 2, "mine"));
  be_silent();
  ASSERT_TRUE(run_leaves_the_worker());
  EXPECT_EQ(worker().calls_of("save_state").size(), 1U);
  EXPECT_NE(try_forward_backward(run, alice, 3).error().message.find("weights/mine"), std::string::npos);
}

TEST_F(SessionEndings, SavingFirstCanBeTurnedOff) {
  config().limits.save_before_expiry = false;
  boot();
  const RunId run = create_model(session(alice), alice);
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  be_silent();
  ASSERT_TRUE(run_leaves_the_worker());
  EXPECT_TRUE(worker().calls_of("save_state").empty());
}

TEST_F(SessionEndings, AFailedSaveIsRetriedAndThenGivenUp) {
  boot();
  const RunId run = create_model(session(alice), alice);
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  worker().fail_next("save_state", Error{ErrorCode::kResourceExhausted, "the disk is full", "disk_full"});
  be_silent();
  ASSERT_TRUE(run_leaves_the_worker());
  EXPECT_EQ(worker().calls_of("save_state").size(), 2U);
  EXPECT_NE(try_forward_backward(run, alice, 2).error().message.find(newest(run)), std::string::npos);

  const RunId other = create_model(session(alice), alice);
  value<OptimStepResult>(alice, optim_step(other, alice, 1));
  worker().clear_calls();
  worker().fail_next("save_state", internal_error("it cannot be saved"));
  be_silent();
  ASSERT_TRUE(run_leaves_the_worker());
  EXPECT_EQ(worker().calls_of("save_state").size(), 1U);
}

// Another try could not help, so nothing is waited for while the worker has the adapter.
TEST_F(SessionEndings, ARunWhoseSaveIsRefusedForALimitOfItsUserLeavesTheWorkerAtOnce) {
  config().limits.checkpoints_per_user_max = 0;
  const auto [s, run] = boot_with_session_and_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  ASSERT_TRUE(plane().end_session(alice, s, {}).ok());
  EXPECT_TRUE(run_leaves_the_worker(0));
  EXPECT_TRUE(worker().calls_of("save_state").empty());
}

// A question about a future would be a sign of life, so only the worker is asked.
TEST_F(SessionEndings, TheSamplesOfASilentClientStopAndItsTrainingGoesOn) {
  const SessionId s = boot_with_session();
  const RunId run = create_model(s, alice);
  const SamplerId sampler = *try_sampler(s, alice, 0, model);
  worker().hold_answers(true);
  const RequestId pass = forward_backward(run, alice, 1);
  const RequestId first = sample(sampler, alice, 0);
  EXPECT_EQ(worker().held(), 2U);
  advance(59 * kSecond);
  ASSERT_TRUE(plane().heartbeat(alice, s).ok());
  advance(59 * kSecond);
  EXPECT_EQ(worker().held(), 2U);
  advance(2 * kSecond);
  EXPECT_EQ(worker().held(), 1U);
  const Error error = failure(alice, first);
  EXPECT_EQ(error.reason, "session_silent");
  EXPECT_NE(error.message.find("60 s (limits.sampling_silence_seconds)"), std::string::npos) << error.message;
  EXPECT_TRUE(pending(alice, pass));
  // It is heard of again, and falls silent again.
  const RequestId second = sample(sampler, alice, 1);
  EXPECT_EQ(worker().held(), 2U);
  advance(61 * kSecond);
  EXPECT_EQ(worker().held(), 1U);
  EXPECT_EQ(failure(alice, second).reason, "session_silent");
  ASSERT_TRUE(plane().heartbeat(alice, s).ok());
  be_silent();
  EXPECT_TRUE(gone(s, alice)) << "a session that was silent for a minute still ends";
}

TEST_F(SessionEndings, RunningOperationsFinishAndWaitingOnesAreCancelled) {
  const SessionId s = boot_with_session();
  const RunId run = create_model(s, alice);
  const SamplerId sampler = *try_sampler(s, alice, 0, model);
  worker().hold_answers(true);
  const RequestId running = optim_step(run, alice, 1);
  const RequestId waiting = optim_step(run, alice, 2);
  const RequestId early = optim_step(run, alice, 9);
  const RequestId sampled = sample(sampler, alice);
  int answered = 0;
  plane().wait_future(alice, waiting, [&](Result<FutureSnapshot> snapshot) {
    EXPECT_EQ(snapshot->error.code, ErrorCode::kCancelled);
    ++answered;
  });
  ASSERT_TRUE(plane().end_session(alice, s, {}).ok());
  EXPECT_EQ(answered, 1);
  for (const RequestId& request : {waiting, early, sampled}) {
    const Error error = failure(alice, request);
    EXPECT_EQ(error.reason, "session_ended") << error.message;
    EXPECT_TRUE(is_user_error(error.code));
    EXPECT_NE(error.message.find("its client finished it"), std::string::npos) << error.message;
  }
  // The worker was told to stop sampling; training runs to its end.
  EXPECT_EQ(worker().held(), 1U);
  EXPECT_TRUE(pending(alice, running));
  worker().stop_holding();
  value<OptimStepResult>(alice, running);
  ASSERT_TRUE(run_leaves_the_worker());
  EXPECT_EQ(worker().calls_of("optim_step").size(), 1U);
  EXPECT_EQ(worker().calls_of("save_state").size(), 1U);
}

TEST_F(SessionEndings, SamplersAndTheirUnnamedCheckpointsAreDropped) {
  const auto [s, run] = boot_with_session_and_run();
  const auto made = value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "", 0));
  ASSERT_TRUE(made.sampler.has_value());
  EXPECT_EQ(worker().samplers(), 1U);
  ASSERT_TRUE(plane().end_session(alice, s, {}).ok());
  EXPECT_EQ(worker().samplers(), 0U);
  const auto refused = plane().sample(alice, sample_request(*made.sampler), no_trace);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotFound);
  EXPECT_NE(refused.error().message.find("finished"), std::string::npos) << refused.error().message;
}

TEST_F(SessionEndings, ASamplerDroppedWhileItIsLoadedLeavesTheWorker) {
  boot();
  const RunId run = create_model(session(alice), alice);
  const std::string path = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "n")).path;
  advance(kUnusedAdapterKept + kSecond);  // the published version has left the worker
  const SessionId s = session(alice);
  worker().hold_answers(true);
  ASSERT_TRUE(try_sampler(s, alice, 0, "", path).ok());
  ASSERT_EQ(worker().held(), 1U);
  ASSERT_TRUE(plane().end_session(alice, s, {}).ok());
  worker().stop_holding();
  EXPECT_EQ(worker().calls_of("add_sampler").size(), 1U);
  EXPECT_EQ(worker().samplers(), 0U);
}

TEST_F(SessionEndings, OnlyItsUserEndsASessionAndARepetitionIsNoError) {
  const SessionId s = boot_with_session();
  EXPECT_EQ(plane().end_session(bob, s, {}).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(plane().end_session(alice, SessionId("nothing"), {}).error().message,
            plane().end_session(bob, s, {}).error().message);
  EXPECT_TRUE(plane().end_session(alice, s, {}).ok());
  EXPECT_TRUE(plane().end_session(alice, s, {}).ok());
  EXPECT_EQ(plane().end_session(bob, s, {}).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(try_sampler(s, alice, 0, model).error().reason, "session_ended");
}

TEST_F(SessionEndings, TheFirstReasonIsKeptAndToldToItsUserOnly) {
  const SessionId s = boot_with_session();
  const SessionFinish long_words{FinishReason::kErrored, std::string(5000, 'x')};
  EXPECT_EQ(plane().end_session(alice, s, long_words).error().code, ErrorCode::kInvalidArgument);
  ASSERT_TRUE(plane().end_session(alice, s, {FinishReason::kErrored, "out of data"}).ok());
  ASSERT_TRUE(plane().end_session(alice, s, {}).ok());
  const Error mine = plane().heartbeat(alice, s).error();
  EXPECT_EQ(mine.code, ErrorCode::kGone);
  EXPECT_NE(mine.message.find("errored"), std::string::npos) << mine.message;
  EXPECT_EQ(plane().heartbeat(bob, s).error().message, plane().heartbeat(bob, SessionId("unknown")).error().message);
  EXPECT_EQ(plane().heartbeat(bob, s).error().code, ErrorCode::kNotFound);
}

TEST_F(SessionEndings, AnAbsentWorkerDoesNotDelayTheEnd) {
  const auto [s, run] = boot_with_session_and_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  worker().die();
  ASSERT_TRUE(plane().end_session(alice, s, {}).ok());
  settle();
  worker().start();
  settle();
  EXPECT_EQ(worker().adapters(), 0U);
  EXPECT_EQ(try_forward_backward(run, alice, 2).error().reason, "session_ended");
}

TEST_F(SessionEndings, EndedSessionsAreNotRestored) {
  keep_state();
  const auto [s, run] = boot_with_session_and_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  const SamplerId sampler = *try_sampler(s, alice, 3, model);
  ASSERT_TRUE(plane().end_session(alice, s, {}).ok());
  ASSERT_TRUE(run_leaves_the_worker());
  settle();
  close();
  boot();
  EXPECT_EQ(worker().adapters(), 0U);
  EXPECT_TRUE(gone(s, alice));
  EXPECT_FALSE(plane().get_sampler(alice, sampler).ok());
  // The error still names the checkpoint.
  EXPECT_NE(try_forward_backward(run, alice, 2).error().message.find(newest(run)), std::string::npos);
}

TEST_F(SessionEndings, ASessionThatWasEndingIsNotRestored) {
  keep_state();
  const auto [s, run] = boot_with_session_and_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  worker().hold_answers(true);
  ASSERT_TRUE(plane().end_session(alice, s, {FinishReason::kInterrupted, "Ctrl-C"}).ok());
  ASSERT_TRUE(durable().ok());
  crash_and_boot();
  const Status alive = plane().heartbeat(alice, s);
  ASSERT_FALSE(alive.ok());
  const Error& error = alive.error();
  EXPECT_EQ(error.code, ErrorCode::kGone);
  EXPECT_EQ(error.reason, "session_ended");
  EXPECT_NE(error.message.find("its client finished it (interrupted)"), std::string::npos) << error.message;
  EXPECT_FALSE(try_forward_backward(run, alice, 2).ok());
  EXPECT_TRUE(plane().catalog().sessions(alice, {}).items.empty());
  EXPECT_TRUE(run_leaves_the_worker());
  settle();
  // The store holds nothing of it any more.
  close();
  boot();
  EXPECT_TRUE(gone(s, alice));
  for (const auto& [key, record] : contents().copy()) {
    EXPECT_EQ(key.find("::session::" + s.str()), std::string::npos) << record;
  }
}

TEST_F(SessionEndings, AnEndThatCannotBeRecordedDoesNotBegin) {
  keep_state();
  const SessionId s = boot_with_session();
  ASSERT_TRUE(durable().ok());
  contents().set_reachable(false);
  session(bob);
  EXPECT_FALSE(durable().ok());  // the write has failed, which shows that the store is away
  ASSERT_TRUE(ready_becomes(false));
  EXPECT_EQ(plane().end_session(alice, s, {}).error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(plane().heartbeat(alice, s).ok());
  contents().set_reachable(true);
  ASSERT_TRUE(ready_becomes(true));
  EXPECT_TRUE(plane().end_session(alice, s, {}).ok());
  EXPECT_TRUE(gone(s, alice));
}

}  // namespace
}  // namespace tuft::control
