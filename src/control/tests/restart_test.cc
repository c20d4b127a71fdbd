// Tests of runs and samplers whose worker ends.
#include <string>
#include <utility>

#include "control/tests/plane.h"
#include "control/workers/model_backend.h"

namespace tuft::control {
namespace {

class Restart : public PlaneTest {
 protected:
  static Error bucket_is_away() { return unavailable("the bucket does not answer", "bucket_unavailable"); }
};

TEST_F(Restart, WhatRanAndWhatWaitedFailsAndTheNextOperationRuns) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  const RequestId running = forward_backward(run, alice, 1);
  const RequestId queued = optim_step(run, alice, 2);
  const RequestId buffered = optim_step(run, alice, 5);
  worker().die();
  worker().hold_answers(false);
  EXPECT_EQ(failure(alice, running).reason, "worker_died");
  for (const RequestId& request : {queued, buffered}) {
    const Error error = failure(alice, request);
    EXPECT_EQ(error.code, ErrorCode::kUnavailable);
    EXPECT_NE(error.message.find("not executed"), std::string::npos);
  }
  const RequestId next = forward_backward(run, alice, 3);
  EXPECT_TRUE(pending(alice, next));
  worker().start();
  value<ProtobufResult>(alice, next);
  forward_backward(run, alice, 4);
  // The failure has used up seq_id 5.
  value<OptimStepResult>(alice, optim_step(run, alice, 6));
  EXPECT_EQ(worker().weights_of(run.str()), 1);
}

TEST_F(Restart, AdaptersComeBackFromTheNewestCheckpointWithTheOptimizer) {
  const RunId run = boot_with_run();
  optim_step(run, alice, 1);
  optim_step(run, alice, 2);
  value<SaveWeightsResult>(alice, save(run, alice, 3, "two"));
  worker().die();
  worker().clear_calls();
  worker().start();
  // Nothing was lost, so nothing fails.
  value<OptimStepResult>(alice, optim_step(run, alice, 4));
  EXPECT_EQ(worker().weights_of(run.str()), 3);
  EXPECT_EQ(worker().calls_of("load_state"), std::vector<std::string>{"load_state " + run.str() + " +optimizer"});
  EXPECT_EQ(worker().last_create().spec().seed(), 7U);
}

TEST_F(Restart, ARollBackNobodyHeardOfFailsTheNextOperationOnce) {
  const RunId run = boot_with_run();
  optim_step(run, alice, 1);
  const auto path = value<SaveWeightsResult>(alice, save(run, alice, 2, "one")).path;
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  worker().restart();
  const Error error = failure(alice, optim_step(run, alice, 4));
  EXPECT_EQ(error.reason, "weights_rolled_back");
  EXPECT_FALSE(is_user_error(error.code));
  EXPECT_NE(error.message.find(path), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("seq_id 2"), std::string::npos) << error.message;
  value<OptimStepResult>(alice, optim_step(run, alice, 5));
  EXPECT_EQ(worker().weights_of(run.str()), 2);
}

TEST_F(Restart, WithoutACheckpointTheFirstStateIsNamed) {
  const RunId run = boot_with_run();
  forward_backward(run, alice, 1);
  worker().die();
  const RequestId while_away = optim_step(run, alice, 2);
  const RequestId after = optim_step(run, alice, 3);
  worker().start();
  EXPECT_NE(failure(alice, while_away).message.find("its first state"), std::string::npos);
  EXPECT_EQ(failure(alice, after).reason, "weights_rolled_back");
  value<OptimStepResult>(alice, optim_step(run, alice, 4));
}

TEST_F(Restart, ALoadNeedsNoWarning) {
  const RunId run = boot_with_run();
  optim_step(run, alice, 1);
  const auto path = value<SaveWeightsResult>(alice, save(run, alice, 2, "one")).path;
  optim_step(run, alice, 3);
  worker().restart();
  value<LoadWeightsResult>(alice, load(run, alice, 4, path));
  value<OptimStepResult>(alice, optim_step(run, alice, 5));
}

TEST_F(Restart, AnUnloadThatFailedCanBeAskedForAgain) {
  const RunId run = boot_with_run();
  forward_backward(run, alice, 1);
  worker().die();
  const RequestId unload = plane().unload_model(alice, run, no_trace)->request;
  worker().start();
  EXPECT_EQ(failure(alice, unload).reason, "weights_rolled_back");
  value<UnloadModelResult>(alice, plane().unload_model(alice, run, no_trace)->request);
}

TEST_F(Restart, AFreshRunHasLostNothing) {
  const RunId run = boot_with_run();
  worker().die();
  const RequestId step = optim_step(run, alice, 1);
  worker().start();
  value<OptimStepResult>(alice, step);
}

TEST_F(Restart, AModelWhoseCheckpointCannotBeReadIsRefusedUntilItsUserDecides) {
  const RunId run = boot_with_run();
  optim_step(run, alice, 1);
  const auto older = value<SaveWeightsResult>(alice, save(run, alice, 2, "one")).path;
  optim_step(run, alice, 3);
  const auto newest = value<SaveWeightsResult>(alice, save(run, alice, 4, "two")).path;
  worker().die();
  worker().fail_next("load_state", data_loss("torn"));
  worker().start();
  for (const int64_t seq : {5, 6}) {
    const Error error = failure(alice, optim_step(run, alice, seq));
    EXPECT_EQ(error.reason, "model_lost");
    EXPECT_NE(error.message.find(newest), std::string::npos) << error.message;
  }
  EXPECT_EQ(failure(alice, save(run, alice, 7, "fresh")).reason, "model_lost");
  EXPECT_EQ(failure(alice, save_for_sampler(run, alice, 8, "fresh")).reason, "model_lost");
  value<LoadWeightsResult>(alice, load(run, alice, 9, older));
  value<OptimStepResult>(alice, optim_step(run, alice, 10));
  EXPECT_EQ(worker().weights_of(run.str()), 2);
}

TEST_F(Restart, ARefusedModelCanBeUnloaded) {
  const RunId run = boot_with_run();
  value<SaveWeightsResult>(alice, save(run, alice, 1, "one"));
  worker().die();
  worker().fail_next("load_state", invalid_argument("another shape"));
  worker().start();
  EXPECT_EQ(failure(alice, optim_step(run, alice, 2)).reason, "model_lost");
  value<UnloadModelResult>(alice, plane().unload_model(alice, run, no_trace)->request);
  EXPECT_EQ(worker().adapters(), 0U);
}

TEST_F(Restart, AModelThatDoesNotComeBackFailsItsOperationsUntilTheNextLife) {
  const RunId run = boot_with_run();
  worker().die();
  worker().fail_next("create_adapter", Error{ErrorCode::kResourceExhausted, "no pages", "adapter_page_bytes"});
  worker().start();
  EXPECT_EQ(failure(alice, optim_step(run, alice, 1)).reason, "model_lost");
  worker().restart();
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
}

// Otherwise a disk that is full when the worker starts again would cost all runs that need their pages.
TEST_F(Restart, AModelThatFindsNoRoomComesBackLater) {
  const RunId run = boot_with_run();
  value<SaveWeightsResult>(alice, save(run, alice, 1));
  int64_t seq_id = 1;
  for (const std::string call : {"create_adapter", "load_state"}) {
    for (const std::string reason : {"adapter_memory_bytes", "memory", "worker_queue_full"}) {
      worker().die();
      worker().fail_next(call, Error{ErrorCode::kResourceExhausted, "full", reason});
      worker().start();
      const RequestId saved = save(run, alice, ++seq_id);
      EXPECT_TRUE(pending(alice, saved)) << call << " " << reason;
      advance(10 * kSecond);
      sweep_until([&] { return !pending(alice, saved); });
      value<SaveWeightsResult>(alice, saved);
    }
  }
}

TEST_F(Restart, AModelThatCannotComeBackForNowCanBeUnloaded) {
  const RunId run = boot_with_run();
  worker().die();
  worker().fail_next("create_adapter", Error{ErrorCode::kResourceExhausted, "full", "adapter_memory_bytes"});
  worker().start();
  EXPECT_TRUE(worker().calls_of("remove_adapter").empty()) << "nothing is there";
  const RequestId unload = plane().unload_model(alice, run, no_trace)->request;
  EXPECT_FALSE(pending(alice, unload));
}

TEST_F(Restart, WhatWaitsComesBeforeTheUnloadingOfAModelThatCannotComeBackForNowUnlessItIsCancelled) {
  const RunId run = boot_with_run();
  worker().die();
  worker().fail_next("create_adapter", Error{ErrorCode::kResourceExhausted, "full", "adapter_memory_bytes"});
  worker().start();
  const RequestId step = optim_step(run, alice, 1);
  const RequestId unload = plane().unload_model(alice, run, no_trace)->request;
  advance(kSecond);
  EXPECT_TRUE(pending(alice, step));
  EXPECT_TRUE(pending(alice, unload));
  EXPECT_TRUE(plane().cancel_future(alice, step).ok());
  advance(kSecond);
  EXPECT_FALSE(pending(alice, unload));
  EXPECT_EQ(value<UnloadModelResult>(alice, unload).run, run);
  EXPECT_EQ(worker().calls_of("create_adapter").size(), 2U) << "it was not restored first";
}

TEST_F(Restart, AModelWhoseCheckpointCannotBeReachedComesBackLater) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  value<SaveWeightsResult>(alice, save(run, alice, 2));
  worker().die();
  worker().fail_next("load_state", bucket_is_away());
  worker().start();
  const RequestId step = optim_step(run, alice, 3);
  // A worker refuses to make an adapter that is there.
  sweep_until([&] { return worker().calls_of("remove_adapter").size() == 1; });
  EXPECT_TRUE(pending(alice, step));
  advance(10 * kSecond);
  sweep_until([&] { return !pending(alice, step); });
  value<OptimStepResult>(alice, step);
  EXPECT_EQ(worker().weights_of(run.str()), 2);
}

TEST_F(Restart, AModelWhoseRestoreWasCutComesBackInTheSameLife) {
  const RunId run = boot_with_run();
  worker().die();
  worker().hold_answers(true);
  worker().start();
  worker().lose_connection();
  worker().fail_next("create_adapter", Error{ErrorCode::kAlreadyExists, "it is there", "adapter_exists"});
  const RequestId step = optim_step(run, alice, 1);
  advance(kSecond);
  advance(10 * kSecond);
  value<OptimStepResult>(alice, step);
  EXPECT_EQ(worker().calls_of("remove_adapter").size(), 2U);
}

TEST_F(Restart, VeryManyModelsComeBackInTurns) {
  config().limits.runs_per_user_max = 1000;
  const SessionId s = boot_with_session();
  const int64_t count = kRestoreSlots + 20;
  for (int64_t seq = 0; seq < count; ++seq) create_model(s, alice, seq);
  worker().die();
  worker().hold_answers(true);
  worker().start();
  EXPECT_EQ(worker().held(), static_cast<size_t>(kRestoreSlots));
  worker().stop_holding();
  EXPECT_EQ(worker().adapters(), static_cast<size_t>(count));
}

TEST_F(Restart, ASaveThatFailsBecauseTheBucketIsAwayFailsAlone) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  const RequestId first = optim_step(run, alice, 1);
  const RequestId saved = save(run, alice, 2);
  const RequestId next = optim_step(run, alice, 3);
  worker().fail_next("save_state", bucket_is_away());
  worker().stop_holding();
  value<OptimStepResult>(alice, first);
  EXPECT_EQ(failure(alice, saved).reason, "bucket_unavailable");
  value<OptimStepResult>(alice, next);
  EXPECT_EQ(worker().weights_of(run.str()), 2);
}

TEST_F(Restart, WhoWasToldThatTheBucketIsAwayIsToldOfALaterLoss) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  worker().fail_next("save_state", bucket_is_away());
  EXPECT_EQ(failure(alice, save(run, alice, 2)).reason, "bucket_unavailable");
  worker().restart();
  EXPECT_EQ(failure(alice, optim_step(run, alice, 3)).reason, "weights_rolled_back");
}

TEST_F(Restart, ADeathWhileComingBackIsTriedAgain) {
  const RunId run = boot_with_run();
  worker().die();
  worker().hold_answers(true);
  worker().start();
  worker().die();
  worker().hold_answers(false);
  const RequestId step = optim_step(run, alice, 1);
  worker().start();
  value<OptimStepResult>(alice, step);
}

TEST_F(Restart, AModelWhoseCreationWasAnsweredAfterTheNextLifeBeganComesBack) {
  const SessionId s = boot_with_session();
  worker().hold_answers(true);
  const RequestId created = submit_create(s, alice);
  worker().set_ready(false);
  worker().start();
  worker().stop_holding();
  const RunId run = value<CreateModelResult>(alice, created).run;
  const RequestId step = optim_step(run, alice, 1);
  value<OptimStepResult>(alice, step);
}

TEST_F(Restart, AWorkerThatDoesNotAnswerKeepsItsOperationsAndItsRuns) {
  const auto [s, run] = boot_with_session_and_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  worker().hold_answers(true);
  const RequestId running = optim_step(run, alice, 2);
  worker().set_ready(false);
  EXPECT_FALSE(plane().ready());
  advance(30 * kSecond);
  EXPECT_TRUE(pending(alice, running));
  worker().stop_holding();
  value<OptimStepResult>(alice, running);
  const RequestId next = optim_step(run, alice, 3);
  EXPECT_TRUE(pending(alice, next));
  worker().set_ready(true);
  advance(kSecond);
  value<OptimStepResult>(alice, next);
  EXPECT_EQ(worker().weights_of(run.str()), 3);
}

TEST_F(Restart, SamplesThatRanAreDrawnAgain) {
  const RunId run = boot_with_run();
  optim_step(run, alice, 1);
  const auto sampler = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 2, "", 0)).sampler;
  value<ProtobufResult>(alice, sample(sampler, alice));
  settle();
  const RequestId running = lose_worker_with([&] { return sample(sampler, alice); });
  const RequestId waiting = sample(sampler, alice);
  EXPECT_TRUE(pending(alice, running));
  EXPECT_TRUE(pending(alice, waiting));
  worker().start();
  for (const RequestId& drawn : {running, waiting}) {
    EXPECT_EQ(sampled_number(value<ProtobufResult>(alice, drawn).bytes), 1);
  }
  EXPECT_EQ(worker().samplers(), 1U);
}

// Else each sweep would ask for it, for all samplers while the bucket is away, or for ever.
TEST_F(Restart, ASamplerThatCannotComeBackIsLoadedForItsNextSample) {
  const RunId run = boot_with_run();
  const auto sampler = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "", 0)).sampler;
  settle();
  const auto loads_of_next_life = [&](Error why) {
    worker().die();
    worker().clear_calls();
    worker().fail_next("add_sampler", std::move(why));
    worker().start();
    for (int i = 0; i < 3; ++i) advance(kSecond);
    return worker().calls_of("add_sampler").size();
  };
  EXPECT_EQ(loads_of_next_life(bucket_is_away()), 1U);
  value<ProtobufResult>(alice, sample(sampler, alice));
  EXPECT_EQ(loads_of_next_life(data_loss("torn")), 1U);
  EXPECT_NE(failure(alice, sample(sampler, alice)).message.find("torn"), std::string::npos);
  worker().restart();
  value<ProtobufResult>(alice, sample(sampler, alice));
}

TEST_F(Restart, ASampleWhoseWorkerIsLostTwiceFails) {
  const RunId run = boot_with_run();
  const auto sampler = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "", 0)).sampler;
  settle();
  const RequestId deadly = lose_worker_with([&] { return sample(sampler, alice); });
  worker().before_next("sample", [&] { worker().hold_answers(true); });
  worker().start();
  EXPECT_TRUE(pending(alice, deadly));
  worker().die();
  worker().hold_answers(false);
  const Error error = failure(alice, deadly);
  EXPECT_EQ(error.reason, "worker_died");
  EXPECT_FALSE(is_user_error(error.code));
  worker().start();
  value<ProtobufResult>(alice, sample(sampler, alice));
}

TEST_F(Restart, ASampleThatIsCancelledWhileItWaitsForAnotherWorkerIsNotDrawn) {
  const RunId run = boot_with_run();
  const auto sampler = *value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "", 0)).sampler;
  settle();
  const RequestId running = lose_worker_with([&] { return sample(sampler, alice); });
  EXPECT_TRUE(plane().cancel_future(alice, running).ok());
  worker().clear_calls();
  worker().start();
  EXPECT_EQ(failure(alice, running).reason, "cancelled");
  EXPECT_TRUE(worker().calls_of("sample").empty());
}

TEST_F(Restart, WithoutAWorkerOperationsWaitAMinuteAndThenFail) {
  boot(false);
  const SessionId s = session(alice);
  const RequestId create = submit_create(s, alice, 0);
  const SamplerId sampler = *try_sampler(s, alice, 0, model);
  const RequestId sampling = sample(sampler, alice);
  advance(59 * kSecond);
  EXPECT_TRUE(pending(alice, create));
  EXPECT_TRUE(pending(alice, sampling));
  advance(2 * kSecond);
  EXPECT_EQ(failure(alice, create).reason, "worker_starting");
  EXPECT_EQ(failure(alice, sampling).reason, "worker_starting");
  const RequestId later = submit_create(s, alice, 1);
  const RequestId later_sample = sample(sampler, alice);
  worker().start();
  value<CreateModelResult>(alice, later);
  value<ProtobufResult>(alice, later_sample);
}

}  // namespace
}  // namespace tuft::control
