// Tests of workers that were away: their connection broke, or the server was restarted, and they come back with what
// they hold.
#include "control/training/run_resumption.h"

#include <gmock/gmock.h>

#include "control/tests/plane.h"

namespace tuft::control {
namespace {

class Resumption : public PlaneTest {
 protected:
  Resumption() { config().supported_models[0].worker = config::WorkerKind::kJoined; }
  void come_back() { worker().start(); }
  void be_silent_and_answer_again() {
    worker().set_ready(false);
    worker().set_ready(true);
    worker().say_ready();
  }
  int64_t next_seq_id() { return ++seq_id_; }
  int64_t next_number() { return ++number_; }

 private:
  int64_t seq_id_ = 0;
  int64_t number_ = 0;
};

TEST_F(Resumption, ARunGoesOnWithTheAdapterThatItsWorkerKept) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  worker().clear_calls();
  worker().disconnect();
  const RequestId waits = optim_step(run, alice, 2);
  EXPECT_TRUE(pending(alice, waits));
  come_back();
  value<OptimStepResult>(alice, waits);
  EXPECT_EQ(worker().weights_of(run.str()), 2);
  EXPECT_EQ(worker().calls().size(), 1U) << "nothing was made or loaded again";
}

TEST_F(Resumption, ALoadThatTheWorkerRefusedIsKnown) {
  const RunId run = boot_with_run();
  const auto path = value<SaveWeightsResult>(alice, save(run, alice, 1)).path;
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  worker().fail_next("load_state", unavailable("the bucket does not answer", "bucket_unavailable"));
  EXPECT_EQ(failure(alice, load(run, alice, 3, path)).reason, "bucket_unavailable");
  worker().disconnect();
  come_back();
  value<OptimStepResult>(alice, optim_step(run, alice, 4));
  EXPECT_EQ(worker().weights_of(run.str()), 2);
}

TEST_F(Resumption, AWorkerThatDoesNotSayInTimeWhatItHoldsIsAskedAgain) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  worker().disconnect();
  worker().fail_next("list_holdings", Error{ErrorCode::kDeadlineExceeded, "no answer within 5 s", "deadline_exceeded"});
  come_back();
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  EXPECT_EQ(worker().weights_of(run.str()), 2);
}

TEST_F(Resumption, AnOperationThatWasRunningFinishesOnce) {
  const RunId run = boot_with_run();
  value<ProtobufResult>(alice, forward_backward(run, alice, 1));
  worker().hold_answers(true);
  const RequestId step = optim_step(run, alice, 2);
  const RequestId next = optim_step(run, alice, 3);
  worker().disconnect();
  EXPECT_TRUE(pending(alice, step));
  worker().hold_answers(false);
  come_back();
  value<OptimStepResult>(alice, step);
  value<OptimStepResult>(alice, next);
  EXPECT_EQ(worker().weights_of(run.str()), 2);
}

TEST_F(Resumption, AnOperationThatWasLostOnTheWayIsSentAgain) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  const RequestId pass = forward_backward(run, alice, 1, "ppo");
  worker().disconnect(/*finishes=*/false);
  worker().hold_answers(false);
  come_back();
  value<ProtobufResult>(alice, pass);
  EXPECT_EQ(worker().last_pass().request().loss_fn(), "ppo");
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  EXPECT_EQ(worker().weights_of(run.str()), 1);
}

TEST_F(Resumption, ASaveThatWasRunningFinishes) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  const RequestId saved = save(run, alice, 1, "a");
  sweep_until([&] { return worker().held() == 1; });
  worker().disconnect();
  worker().hold_answers(false);
  come_back();
  EXPECT_THAT(value<SaveWeightsResult>(alice, saved).path, ::testing::EndsWith("/a"));
}

TEST_F(Resumption, ASaveForASamplerThatWasRunningFinishes) {
  const auto [own, run] = boot_with_session_and_run();
  for (const bool finishes : {true, false}) {
    for (const size_t answered : {0, 1}) {  // the connection breaks while the worker publishes, or writes the file
      const std::string name = "s" + std::to_string(2 * answered + (finishes ? 1 : 0));
      worker().hold_answers(true);
      const RequestId saved = save_for_sampler(run, alice, next_seq_id(), name);
      for (size_t i = 0; i < answered; ++i) {
        sweep_until([&] { return worker().held() == 1; });
        ASSERT_TRUE(worker().answer_next());
      }
      sweep_until([&] { return worker().held() == 1; });
      worker().disconnect(finishes);
      EXPECT_TRUE(pending(alice, saved));
      worker().hold_answers(false);
      come_back();
      const auto done = value<SaveWeightsForSamplerResult>(alice, saved);
      EXPECT_THAT(*done.path, ::testing::EndsWith("/" + name));
      const SamplerId sampler = *try_sampler(own, alice, next_number(), "", *done.path);
      value<ProtobufResult>(alice, sample(sampler, alice));
    }
  }
  EXPECT_EQ(worker().samplers(), 4U) << "nothing is left of the first attempts";
  value<OptimStepResult>(alice, optim_step(run, alice, next_seq_id()));
  EXPECT_EQ(worker().weights_of(run.str()), 1);
}

TEST_F(Resumption, AWorkerWithoutTheAdapterTakesTheRunFromItsCheckpointAndTheClientIsTold) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  worker().hold_answers(true);
  const RequestId step = optim_step(run, alice, 2);
  worker().disconnect();
  worker().die();
  worker().hold_answers(false);
  come_back();
  EXPECT_EQ(failure(alice, step).code, ErrorCode::kUnavailable);
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  EXPECT_EQ(worker().weights_of(run.str()), 1) << "from its first state";
}

// It was told to remove the adapter, because its list named one with which no run went on.
TEST_F(Resumption, ARunThatIsBeingRestoredStaysInAWorkerThatAnswersAgain) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  value<SaveWeightsResult>(alice, save(run, alice, 2));
  worker().die();
  worker().hold_answers(true);
  come_back();
  sweep_until([&] { return worker().held() == 1; });
  ASSERT_TRUE(worker().answer_next());  // create_adapter
  ASSERT_EQ(worker().calls_of("load_state").size(), 1U);
  be_silent_and_answer_again();
  EXPECT_TRUE(worker().calls_of("remove_adapter").empty());
  worker().stop_holding();
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  EXPECT_EQ(worker().weights_of(run.str()), 2);
}

TEST_F(Resumption, AVersionThatIsBeingWrittenStaysInAWorkerThatAnswersAgain) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  const RequestId saved = save_for_sampler(run, alice, 1, "s");
  sweep_until([&] { return worker().held() == 1; });
  ASSERT_TRUE(worker().answer_next());  // publish_adapter
  sweep_until([&] { return worker().calls_of("save_sampler").size() == 1; });
  be_silent_and_answer_again();
  EXPECT_TRUE(worker().calls_of("remove_sampler").empty());
  worker().stop_holding();
  value<SaveWeightsForSamplerResult>(alice, saved);
}

TEST_F(Resumption, ASamplerStaysInTheWorker) {
  const auto [own, run] = boot_with_session_and_run();
  const auto saved = value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "s"));
  const SamplerId sampler = *try_sampler(own, alice, 1, "", *saved.path);
  value<ProtobufResult>(alice, sample(sampler, alice));
  worker().clear_calls();
  worker().disconnect();
  come_back();
  value<ProtobufResult>(alice, sample(sampler, alice));
  EXPECT_TRUE(worker().calls_of("add_sampler").empty());
  EXPECT_EQ(worker().samplers(), 1U);
}

TEST_F(Resumption, WhatNobodyWantsIsRemovedFromTheWorker) {
  const RunId run = boot_with_run();
  worker().disconnect();
  boot(false);
  FakeActor former(model);
  former.start();
  former.create_adapter(
      [] {
        worker::v1::CreateAdapterRequest request;
        request.set_adapter_id("stale");
        return request;
      }(),
      {}, [](const auto&) {});
  former.move_to(worker());
  come_back();
  EXPECT_EQ(worker().adapters(), 0U);
  EXPECT_EQ(worker().calls_of("remove_adapter").size(), 1U);
}

class ResumptionElsewhere : public Resumption {
 protected:
  ResumptionElsewhere() { config().supported_models[0].workers = 2; }
};

TEST_F(ResumptionElsewhere, AWorkerThatWasAwayTooLongFindsItsRunElsewhere) {
  const RunId run = boot_with_run();
  FakeActor& from = home(run);
  from.hold_answers(true);
  const RequestId step = optim_step(run, alice, 1);
  from.disconnect();
  from.hold_answers(false);
  let_last(3 * kSecond);
  EXPECT_EQ(failure(alice, step).code, ErrorCode::kUnavailable) << "nobody knows whether it was made";
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  EXPECT_EQ(other(from).weights_of(run.str()), 1);
  from.start();
  EXPECT_EQ(from.adapters(), 0U);
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  EXPECT_EQ(other(from).weights_of(run.str()), 2);
}

// Nobody had looked again before its operation was reported failed.
TEST_F(ResumptionElsewhere, AWorkerThatIsBackWhenItsRunsAreMovedKeepsThem) {
  const RunId run = boot_with_run();
  FakeActor& from = home(run);
  from.hold_answers(true);
  const RequestId step = optim_step(run, alice, 1);
  from.disconnect();
  from.hold_answers(false);
  advance(kMillisecond);
  from.after_next_up([&] { from.come_up(); });
  advance(3 * kSecond);
  ASSERT_TRUE(from.up());
  EXPECT_TRUE(pending(alice, step));
  from.say_ready();
  value<OptimStepResult>(alice, step);
  EXPECT_EQ(from.weights_of(run.str()), 1);
  EXPECT_EQ(other(from).adapters(), 0U);
}

TEST_F(ResumptionElsewhere, AWorkerThatIsBackWhileItsOperationFailsDoesNotKeepWhatItMade) {
  const RunId run = boot_with_run();
  FakeActor& from = home(run);
  from.hold_answers(true);
  const RequestId step = optim_step(run, alice, 1);
  from.disconnect();
  from.hold_answers(false);
  plane().wait_future(alice, step, [&](const Result<FutureSnapshot>&) { from.start(); });
  let_last(3 * kSecond);
  ASSERT_TRUE(from.up());
  EXPECT_EQ(failure(alice, step).code, ErrorCode::kUnavailable);
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  EXPECT_EQ(from.weights_of(run.str()), 1) << "the second step alone";
}

TEST_F(ResumptionElsewhere, AWorkerMayComeBackInAnotherPlace) {
  const RunId run = boot_with_run();
  FakeActor& from = home(run);
  FakeActor& to = other(from);
  from.hold_answers(true);
  const RequestId step = optim_step(run, alice, 1);
  from.disconnect();
  to.disconnect();
  from.move_to(to);
  to.start();
  advance(kMillisecond);
  value<OptimStepResult>(alice, step);
  EXPECT_EQ(to.weights_of(run.str()), 1);
}

class Takeover : public Resumption {
 protected:
  Takeover() { keep_state(); }
};

TEST_F(Takeover, ARunGoesOnAtItsWorker) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  crash_and_come_back();
  EXPECT_TRUE(worker().calls_of("create_adapter").empty());
  value<ProtobufResult>(alice, forward_backward(run, alice, 2));
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  EXPECT_EQ(worker().weights_of(run.str()), 2);
}

// It was dropped, and what it had trained was lost, before its worker could say that it holds it.
TEST_F(Takeover, ARunWhoseSessionEndsIsSavedWhenItsWorkerIsBack) {
  const auto [own, run] = boot_with_session_and_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  ASSERT_TRUE(durable().ok());
  crash_and_come_back(true, [&, own = own] {
    EXPECT_TRUE(plane().end_session(alice, own, {}).ok());
    for (int i = 0; i < 5; ++i) advance(kSecond);
  });
  sweep_until([&, run = run] {
    advance(kSecond / 10);
    return worker().weights_of(run.str()) < 0;
  });
  const auto names = names_in(folder(run));
  ASSERT_EQ(names.size(), 1U);
  EXPECT_TRUE(names.begin()->starts_with("expired-")) << *names.begin();
}

TEST_F(Takeover, ARunWhoseSessionEndsLeavesNoRecordIfNoWorkerHoldsIt) {
  const auto [own, run] = boot_with_session_and_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  ASSERT_TRUE(durable().ok());
  crash();
  boot(false);
  EXPECT_TRUE(plane().end_session(alice, own, {}).ok());
  advance(kSecond);
  worker().start();
  const auto has_record = [&, run = run] {
    for (const auto& [key, value] : contents().copy()) {
      if (key.ends_with("::training_run::" + run.str())) return true;
    }
    return false;
  };
  sweep_until([&] { return !has_record(); });
  advance(2 * RunResumption::kHope);
  ASSERT_TRUE(durable().ok());
  EXPECT_FALSE(has_record());
}

TEST_F(Takeover, ASamplerStaysInTheWorker) {
  const auto [own, run] = boot_with_session_and_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  const auto saved = value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 2, "s"));
  const SamplerId sampler = *try_sampler(own, alice, 1, "", *saved.path);
  value<ProtobufResult>(alice, sample(sampler, alice));
  ASSERT_TRUE(durable().ok());
  crash_and_come_back();
  EXPECT_EQ(sampled_number(value<ProtobufResult>(alice, sample(sampler, alice)).bytes), 1);
  EXPECT_TRUE(worker().calls_of("add_sampler").empty());
  EXPECT_EQ(worker().samplers(), 1U);
}

TEST_F(Takeover, AnOlderVersionOfASamplerDoesNotStayInTheWorker) {
  const auto [own, run] = boot_with_session_and_run();
  const auto saved = value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 1, "s"));
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  value<SaveWeightsForSamplerResult>(alice, save_for_sampler(run, alice, 3, "s"));
  const SamplerId newer = *try_sampler(own, alice, 2, "", *saved.path);
  value<ProtobufResult>(alice, sample(newer, alice));
  ASSERT_TRUE(durable().ok());
  crash_and_come_back();
  EXPECT_EQ(sampled_number(value<ProtobufResult>(alice, sample(newer, alice, 1)).bytes), 1);
}

TEST_F(Takeover, AGradientIsKept) {
  const RunId run = boot_with_run();
  value<ProtobufResult>(alice, forward_backward(run, alice, 1));
  crash_and_come_back();
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  EXPECT_EQ(worker().weights_of(run.str()), 1);
}

TEST_F(Takeover, WhatAWorkerFinishedMeanwhileIsDelivered) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  const RequestId step = optim_step(run, alice, 1);
  const RequestId not_begun = forward_backward(run, alice, 2);
  ASSERT_TRUE(durable().ok());
  crash_and_come_back();
  const auto result = value<OptimStepResult>(alice, step);
  EXPECT_GT(result.metrics.at("learning_rate"), 0) << "of the request, which is gone";
  const Error error = wait(alice, not_begun).error();
  EXPECT_EQ(error.code, ErrorCode::kGone);
  EXPECT_EQ(error.reason, "server_restarted");
  crash_and_come_back();
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  EXPECT_EQ(worker().weights_of(run.str()), 2);
}

TEST_F(Takeover, AnOperationThatWasNotStoredYetIsNotDoneTwice) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  ASSERT_TRUE(durable().ok());
  const auto before = contents().copy();
  worker().hold_answers(true);
  optim_step(run, alice, 2);
  for (const auto& [key, value] : contents().copy()) contents().erase(key);
  for (const auto& [key, value] : before) contents().put(key, value);
  crash_and_come_back();
  EXPECT_EQ(worker().weights_of(run.str()), 2);
  // The client got no answer, so it sends the same again.
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  EXPECT_EQ(worker().weights_of(run.str()), 2);
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  EXPECT_EQ(worker().weights_of(run.str()), 3);
}

TEST_F(Takeover, AClientMaySendItAgainBeforeItsWorkerIsBack) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  ASSERT_TRUE(durable().ok());
  const auto before = contents().copy();
  worker().hold_answers(true);
  optim_step(run, alice, 2);
  for (const auto& [key, value] : contents().copy()) contents().erase(key);
  for (const auto& [key, value] : before) contents().put(key, value);
  RequestId again;
  crash_and_come_back(true, [&] { again = optim_step(run, alice, 2); });
  value<OptimStepResult>(alice, again);
  EXPECT_EQ(worker().weights_of(run.str()), 2);
  crash_and_come_back();
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  EXPECT_EQ(worker().weights_of(run.str()), 3);
}

TEST_F(Takeover, ARunThatNoWorkerHoldsGoesBackToItsCheckpoint) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  value<SaveWeightsResult>(alice, save(run, alice, 2));
  const RequestId undone = optim_step(run, alice, 3);
  value<OptimStepResult>(alice, undone);
  worker().hold_answers(true);
  const RequestId step = optim_step(run, alice, 4);
  ASSERT_TRUE(durable().ok());
  crash_and_boot();
  EXPECT_EQ(wait(alice, step).error().code, ErrorCode::kGone);
  EXPECT_EQ(peek(alice, undone).error().code, ErrorCode::kGone) << "what was trained is not there any more";
  // The numbers of what is undone are free.
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  EXPECT_EQ(worker().weights_of(run.str()), 2);
  crash_and_come_back();
  value<OptimStepResult>(alice, optim_step(run, alice, 4));
  EXPECT_EQ(worker().weights_of(run.str()), 3);
}

// Clients got an HTTP error instead of the failure.
TEST_F(Takeover, AnOperationThatHadFailedStaysSoWhenItsRunGoesBack) {
  const RunId run = boot_with_run();
  value<SaveWeightsResult>(alice, save(run, alice, 1));
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  worker().fail_next("optim_step", internal_error("the worker is out of order"));
  const RequestId failed = optim_step(run, alice, 3);
  EXPECT_EQ(failure(alice, failed).code, ErrorCode::kInternal);
  ASSERT_TRUE(durable().ok());
  crash_and_boot();
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  const auto again = wait(alice, failed);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->error.message, "the worker is out of order");
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
}

// What was saved for samplers stays, although its run goes back, and another operation gets its number.
TEST_F(Takeover, ANumberThatIsFreeStaysFreeInTheStore) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  value<SaveWeightsResult>(alice, save(run, alice, 2));
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  const RequestId kept = save_for_sampler(run, alice, 4, "s");
  value<SaveWeightsForSamplerResult>(alice, kept);
  ASSERT_TRUE(durable().ok());
  crash_and_boot();
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  const RequestId step = optim_step(run, alice, 4);
  value<OptimStepResult>(alice, step);
  ASSERT_TRUE(durable().ok());
  crash_and_come_back();
  EXPECT_EQ(optim_step(run, alice, 4), step) << "a repetition";
  value<SaveWeightsForSamplerResult>(alice, kept);
  value<OptimStepResult>(alice, optim_step(run, alice, 5));
  EXPECT_EQ(worker().weights_of(run.str()), 4);
}

TEST_F(Takeover, AClientThatGoesOnAfterALossIsToldOnce) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  ASSERT_TRUE(durable().ok());
  crash();
  boot(false);
  const RequestId meanwhile = optim_step(run, alice, 2);
  worker().start();
  EXPECT_EQ(failure(alice, meanwhile).reason, "weights_rolled_back");
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  EXPECT_EQ(worker().weights_of(run.str()), 1);
}

TEST_F(Takeover, ARunWaitsForItsWorkerALimitedTime) {
  config().supported_models[0].workers = 2;
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  ASSERT_TRUE(durable().ok());
  crash();
  boot(false);
  worker(1).start();
  const RequestId step = optim_step(run, alice, 2);
  advance(RunResumption::kHope / 2);
  EXPECT_EQ(worker(1).adapters(), 0U) << "its worker may come to the other place";
  advance(RunResumption::kHope);
  EXPECT_EQ(failure(alice, step).reason, "weights_rolled_back");
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
}

}  // namespace
}  // namespace tuft::control
