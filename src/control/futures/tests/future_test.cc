// Futures, sessions and limits.
#include "control/tests/plane.h"
#include "telemetry/testing/recorded_metrics.h"

namespace tuft::control {
namespace {

class Futures : public PlaneTest {};

TEST_F(Futures, AWaitEndsWhenTheOperationDoes) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  const RequestId request = optim_step(run, alice, 1);
  int calls = 0;
  for (int i = 0; i < 3; ++i) {
    plane().wait_future(alice, request, [&](Result<FutureSnapshot> snapshot) {
      ASSERT_TRUE(snapshot.ok());
      EXPECT_EQ(snapshot->state, FutureSnapshot::State::kReady);
      EXPECT_EQ(snapshot->operation, OperationType::kOptimStep);
      ++calls;
    });
  }
  EXPECT_EQ(calls, 0);
  worker().answer_all();
  EXPECT_EQ(calls, 3);
}

TEST_F(Futures, AnEndedWaitGetsThePendingSnapshotOnce) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  const RequestId request = optim_step(run, alice, 1);
  int calls = 0;
  const auto wait_id = plane().wait_future(alice, request, [&](Result<FutureSnapshot> snapshot) {
    EXPECT_EQ(snapshot->state, FutureSnapshot::State::kPending);
    ++calls;
  });
  plane().end_wait(wait_id);
  plane().end_wait(wait_id);
  EXPECT_EQ(calls, 1);
  worker().answer_all();
  EXPECT_EQ(calls, 1);
  plane().end_wait(12345);
}

TEST_F(Futures, AResultCanBeFetchedAgainUntilItsRetentionEnds) {
  const RunId run = boot_with_run();
  const RequestId request = optim_step(run, alice, 1);
  value<OptimStepResult>(alice, request);
  advance(3000 * kSecond);
  value<OptimStepResult>(alice, request);
  advance(700 * kSecond);
  EXPECT_EQ(wait(alice, request).error().code, ErrorCode::kGone);
  EXPECT_EQ(wait(bob, request).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(wait(alice, RequestId("nothing")).error().code, ErrorCode::kNotFound);
  // Its seq_id stays used.
  EXPECT_EQ(failure(alice, optim_step(run, alice, 1)).reason, "seq_id_passed");
  EXPECT_EQ(worker().weights_of(run.str()), 1);
}

TEST_F(Futures, OverTheByteLimitTheLongestDeliveredGoFirst) {
  config().limits.future_bytes_max = 6000;  // room for three futures with small results
  const RunId run = boot_with_run();
  const RequestId unread = optim_step(run, alice, 1);
  const RequestId read = optim_step(run, alice, 2);
  value<OptimStepResult>(alice, read);
  const RequestId third = optim_step(run, alice, 3);
  optim_step(run, alice, 4);
  EXPECT_EQ(peek(alice, read).error().code, ErrorCode::kGone);
  EXPECT_TRUE(peek(alice, unread).ok());
  EXPECT_TRUE(peek(alice, third).ok());
}

TEST_F(Futures, UnfinishedFuturesOfAUserAreLimited) {
  const RunId run = boot_with_run();
  const RunId other = create_model(bob);
  config().limits.futures_per_user_max = 2;
  const RunId limited = boot_with_run();
  worker().hold_answers(true);
  const RequestId first = optim_step(limited, alice, 1);
  optim_step(limited, alice, 2);
  const auto refused = try_forward_backward(limited, alice, 3);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(refused.error().message.find("limits.futures_per_user_max"), std::string::npos);
  EXPECT_EQ(optim_step(limited, alice, 1), first);
  submit_create(session(bob), bob);
  worker().answer_next();
  worker().answer_all();
  forward_backward(limited, alice, 3);
}

TEST_F(Futures, ShutDownFailsWhatIsPendingAndRefusesMore) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  const RequestId running = optim_step(run, alice, 1);
  const RequestId queued = optim_step(run, alice, 2);
  const RequestId buffered = optim_step(run, alice, 5);
  const SamplerId sampler = *try_sampler(session(alice), alice, 0, model);
  const RequestId sampling = sample(sampler, alice);
  int ended = 0;
  plane().wait_future(alice, running, [&](Result<FutureSnapshot> snapshot) {
    EXPECT_EQ(snapshot->error.code, ErrorCode::kUnavailable);
    ++ended;
  });
  plane().shut_down();
  EXPECT_EQ(ended, 1);
  for (const RequestId& request : {queued, buffered, sampling}) {
    EXPECT_EQ(failure(alice, request).code, ErrorCode::kUnavailable);
  }
  EXPECT_EQ(try_forward_backward(run, alice, 3).error().code, ErrorCode::kUnavailable);
  worker().answer_all();
  EXPECT_EQ(failure(alice, running).code, ErrorCode::kUnavailable);
}

TEST_F(Futures, AnAnswerAfterTheEndOfThePlaneIsDropped) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  optim_step(run, alice, 1);
  sample(*try_sampler(session(alice), alice, 0, model), alice);
  close();
  worker().answer_all();
}

TEST_F(Futures, SessionsAreRepeatableByKeyAndBelongToOneUser) {
  boot();
  CreateSession request;
  request.idempotency_key = "k";
  const SessionId first = *plane().create_session(alice, request);
  EXPECT_EQ(*plane().create_session(alice, request), first);
  EXPECT_NE(*plane().create_session(bob, request), first);
  EXPECT_TRUE(plane().heartbeat(alice, first).ok());
  EXPECT_EQ(plane().heartbeat(bob, first).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(plane().heartbeat(alice, SessionId("x")).error().code, ErrorCode::kNotFound);
  request.idempotency_key.clear();
  request.user_metadata["k"] = std::string(70'000, 'x');
  EXPECT_EQ(plane().create_session(alice, request).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(Futures, AtTheSessionLimitOnlyASilentSessionMakesRoom) {
  const telemetry::testing::RecordedMetrics metrics;
  config().limits.sessions_per_user_max = 2;
  const SessionId silent = boot_with_session();
  create_model(silent, alice);
  const SessionId alive = session(alice);
  const auto refused = plane().create_session(alice, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(refused.error().message.find("limits.sessions_per_user_max"), std::string::npos);
  session(bob);
  advance(61 * kSecond);
  ASSERT_TRUE(plane().heartbeat(alice, alive).ok());
  session(alice);
  EXPECT_EQ(plane().heartbeat(alice, silent).error().code, ErrorCode::kGone);
  EXPECT_TRUE(plane().heartbeat(alice, alive).ok());
  EXPECT_EQ(worker().adapters(), 0U);
  EXPECT_EQ(metrics.counter("tuft.sessions.expired", {{"reason", "limit"}}), 1);
}

TEST_F(Futures, AtTheRunLimitOnlyARunOfASilentSessionMakesRoom) {
  config().limits.runs_per_user_max = 1;
  const RunId old = boot_with_run();
  const SessionId s = session(alice);
  const CreateModel request = create_request(s);
  const auto refused = plane().create_model(alice, request, no_trace);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("limits.runs_per_user_max"), std::string::npos);
  create_model(bob);
  advance(61 * kSecond);
  value<CreateModelResult>(alice, plane().create_model(alice, request, no_trace)->request);
  EXPECT_EQ(plane().get_info(alice, old).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(worker().adapters(), 2U);
}

TEST_F(Futures, NobodySeesTheThingsOfOtherUsers) {
  const auto [s, run] = boot_with_session_and_run();
  const RequestId request = optim_step(run, alice, 1);
  const SamplerId sampler = *try_sampler(s, alice, 0, model);
  const auto path = value<SaveWeightsResult>(alice, save(run, alice, 2, "mine")).path;

  EXPECT_EQ(wait(bob, request).error().code, ErrorCode::kNotFound);
  value<OptimStepResult>(alice, request);
  // The answers for foreign and for unknown ids are the same.
  const RunId nothing("nothing");
  EXPECT_EQ(plane().get_info(bob, run).error().message, plane().get_info(bob, nothing).error().message);
  EXPECT_EQ(try_forward_backward(run, bob, 1).error().message, try_forward_backward(nothing, bob, 1).error().message);
  EXPECT_EQ(plane().unload_model(bob, run, no_trace).error().code, ErrorCode::kNotFound);
  OptimStep step;
  step.run = run;
  EXPECT_EQ(plane().optim_step(bob, step, no_trace).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(plane().save_weights(bob, {run, 3, "x", {}, false}, no_trace).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(plane().save_weights_for_sampler(bob, {run, 3, "x", {}, {}}, no_trace).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(plane().load_weights(bob, {run, 3, path, false}, no_trace).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(plane().get_sampler(bob, sampler).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(plane().sample(bob, sample_request(sampler), no_trace).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(plane().weights_info(bob, path).error().code, ErrorCode::kNotFound);

  EXPECT_EQ(plane().create_model(bob, create_request(s), no_trace).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(try_sampler(s, bob, 9, model).error().code, ErrorCode::kNotFound);
  const SessionId bobs = session(bob);
  EXPECT_EQ(try_sampler(bobs, bob, 0, "", path).error().code, ErrorCode::kNotFound);
  const RunId bobs_run = create_model(bobs, bob);
  EXPECT_EQ(failure(bob, load(bobs_run, bob, 1, path)).code, ErrorCode::kNotFound);
}

TEST_F(Futures, InfoAndModels) {
  boot();
  const auto models = plane().supported_models();
  ASSERT_EQ(models.size(), 1U);
  EXPECT_EQ(models[0].model_name, model);
  EXPECT_EQ(models[0].max_context_length, 16);
  EXPECT_TRUE(plane().ready());
  worker().set_ready(false);
  EXPECT_FALSE(plane().ready());
  worker().set_ready(true);
  const auto info = plane().get_info(alice, create_model(alice));
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->architecture, "FakeForCausalLM");
  EXPECT_EQ(info->tokenizer_id, model);
  EXPECT_EQ(info->lora_rank, 8);
  EXPECT_EQ(*plane().authenticate("tml-bob"), bob);
}

}  // namespace
}  // namespace tuft::control
