// Tests of replicate: true: what a lost worker did is made again, and nobody is told.
#include "control/training/run_replay.h"

#include <functional>

#include <gmock/gmock.h>

#include "control/training/tests/replay_fixture.h"

namespace tuft::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(Replay, WhatALostWorkerDidIsMadeAgain) {
  const RunId run = boot_with_run();
  pass(run);
  step(run);
  pass(run);
  worker().clear_calls();
  worker().restart();
  EXPECT_THAT(functions(worker()), ElementsAre("create_adapter", "forward_backward", "optim_step", "forward_backward"));
  step(run);
  EXPECT_EQ(worker().weights_of(run.str()), 2) << "and the client is not told";
}

TEST_F(Replay, OnlyWhatCameAfterTheRestorePointIsMadeAgain) {
  const RunId run = boot_with_run();
  pass(run);
  step(run);
  pass(run);
  const auto saved = value<SaveWeightsResult>(alice, save(run, alice, next(), "with-a-gradient"));
  worker().clear_calls();
  worker().restart();
  sweep_until([&] { return worker().calls().size() == 3; });
  EXPECT_THAT(functions(worker()), ElementsAre("create_adapter", "load_state", "forward_backward"));
  value<LoadWeightsResult>(alice, load(run, alice, next(), saved.path));
  worker().clear_calls();
  worker().restart();
  sweep_until([&] { return worker().calls().size() == 2; });
  EXPECT_THAT(functions(worker()), ElementsAre("create_adapter", "load_state"));
  step(run);
  EXPECT_EQ(worker().weights_of(run.str()), 2);
}

TEST_F(Replay, AnOperationThatWasRunningIsMadeAgain) {
  const RunId run = boot_with_run();
  step(run);
  worker().hold_answers(true);
  const RequestId running = forward_backward(run, alice, next(), "ppo");
  const RequestId waits = optim_step(run, alice, next());
  worker().die();
  EXPECT_TRUE(pending(alice, running));
  worker().hold_answers(false);
  worker().start();
  value<ProtobufResult>(alice, running);
  value<OptimStepResult>(alice, waits);
  EXPECT_EQ(worker().last_pass().request().loss_fn(), "ppo");
  EXPECT_EQ(worker().weights_of(run.str()), 2);
}

TEST_F(Replay, SavesAndLoadsThatWereRunningAreMadeAgain) {
  const RunId run = boot_with_run();
  step(run);
  for (const bool for_sampler : {false, true}) {
    worker().hold_answers(true);
    const RequestId saved =
        for_sampler ? save_for_sampler(run, alice, next(), "of-sampler") : save(run, alice, next(), "of-run");
    sweep_until([&] { return worker().held() == 1; });
    worker().die();
    worker().hold_answers(false);
    worker().start();
    if (for_sampler) {
      EXPECT_THAT(*value<SaveWeightsForSamplerResult>(alice, saved).path, HasSubstr("/of-sampler"));
    } else {
      EXPECT_THAT(value<SaveWeightsResult>(alice, saved).path, HasSubstr("/of-run"));
    }
  }
  step(run);
  const RequestId loaded =
      lose_worker_with([&] { return load(run, alice, next(), "tinker://" + run.str() + "/weights/of-run"); });
  worker().start();
  value<LoadWeightsResult>(alice, loaded);
  EXPECT_EQ(worker().weights_of(run.str()), 1);
}

TEST_F(Replay, AnOperationThatEndsItsWorkerTwiceFailsAlone) {
  const RunId run = boot_with_run();
  step(run);
  const RequestId deadly = lose_worker_with([&] { return optim_step(run, alice, next()); });
  worker().before_next("create_adapter", [&] {
    worker().before_next("optim_step",
                         [&] { worker().before_next("optim_step", [&] { worker().hold_answers(true); }); });
  });
  worker().start();
  EXPECT_TRUE(pending(alice, deadly));
  worker().die();
  EXPECT_EQ(failure(alice, deadly).reason, "worker_died");
  worker().hold_answers(false);
  worker().start();
  step(run);
  EXPECT_EQ(worker().weights_of(run.str()), 2) << "the first and the last step";
}

TEST_F(Replay, AWorkerThatIsLostDuringTheReplayIsOneMore) {
  const RunId run = boot_with_run();
  for (int i = 0; i < 3; ++i) step(run);
  worker().die();
  for (int i = 0; i < RunJournal::kTriesMax - 1; ++i) {
    worker().before_next("optim_step", [&] { worker().hold_answers(true); });
    worker().start();
    worker().die();
    worker().hold_answers(false);
  }
  worker().start();
  step(run);
  EXPECT_EQ(worker().weights_of(run.str()), 4);
}

TEST_F(Replay, AReplayThatEndsEachWorkerIsGivenUp) {
  const RunId run = boot_with_run();
  step(run);
  worker().die();
  for (int i = 0; i < RunJournal::kTriesMax; ++i) {
    worker().before_next("optim_step", [&] { worker().hold_answers(true); });
    worker().start();
    worker().die();
    worker().hold_answers(false);
  }
  worker().start();
  EXPECT_EQ(failure(alice, optim_step(run, alice, next())).reason, "weights_rolled_back");
  step(run);
  EXPECT_EQ(worker().weights_of(run.str()), 1);
}

TEST_F(Replay, AReplayThatIsRefusedMakesTheRunGoBackAndItsClientIsTold) {
  const RunId run = boot_with_run();
  value<SaveWeightsResult>(alice, save(run, alice, next(), "first"));
  for (int i = 0; i < 3; ++i) step(run);
  worker().die();
  worker().before_next("optim_step", [&] { worker().fail_next("optim_step", invalid_argument("no")); });
  worker().start();
  advance(kSecond);
  EXPECT_EQ(failure(alice, optim_step(run, alice, next())).reason, "weights_rolled_back");
  EXPECT_EQ(worker().weights_of(run.str()), 0);
  step(run);
  worker().restart();
  step(run);
  EXPECT_EQ(worker().weights_of(run.str()), 2) << "the journal has begun again";
}

TEST_F(Replay, AtTheEndOfALongJournalTheServerSaves) {
  const RunId run = boot_with_run();
  for (size_t i = 0; i < RunJournal::kEntriesMax; ++i) step(run);
  step(run);
  EXPECT_THAT(worker().calls_of("save_state"), ::testing::SizeIs(1));
  worker().clear_calls();
  worker().restart();
  sweep_until([&] { return worker().calls().size() == 3; });
  EXPECT_THAT(functions(worker()), ElementsAre("create_adapter", "load_state", "optim_step"));
  EXPECT_EQ(worker().weights_of(run.str()), static_cast<int>(RunJournal::kEntriesMax) + 1);
}

TEST_F(Replay, AJournalOfPassesWithoutAStepIsGivenUpAtTheLimit) {
  shorten_journals();
  const RunId run = boot_with_run();
  for (int i = 0; i < 10; ++i) pass(run);
  EXPECT_TRUE(worker().calls_of("save_state").empty()) << "no checkpoint holds a gradient";
  worker().restart();
  EXPECT_EQ(failure(alice, optim_step(run, alice, next())).reason, "weights_rolled_back");
  for (int i = 0; i < 10; ++i) pass(run);
  step(run);
  sweep_until([&] { return worker().calls_of("save_state").size() == 1; });
  step(run);
  worker().restart();
  step(run);
  EXPECT_EQ(worker().weights_of(run.str()), 3) << "the journal has begun at the end of the step";
}

TEST_F(Replay, AUserWithManyJournalsSavesSooner) {
  shorten_journals();
  const RunId run = boot_with_run();
  for (int i = 0; i < 30; ++i) step(run);
  EXPECT_GE(worker().calls_of("save_state").size(), 3U);
  worker().restart();
  step(run);
  EXPECT_EQ(worker().weights_of(run.str()), 31);
}

TEST_F(Replay, ASaveThatFailsDoesNotStopTheRun) {
  shorten_journals();
  const RunId run = boot_with_run();
  worker().fail_next("save_state", Error{ErrorCode::kResourceExhausted, "full", "disk_full"});
  for (int i = 0; i < 10; ++i) step(run);
  EXPECT_EQ(worker().weights_of(run.str()), 10);
}

TEST_F(Replay, ARunWhoseSavesFailSlowlyTrainsMostOfTheTime) {
  constexpr Nanos kSlow = 60 * kSecond;
  shorten_journals();
  const RunId run = boot_with_run();
  std::function<void()> fail = [&] {
    clock().advance(kSlow);
    worker().fail_next("save_state", unavailable("the bucket does not answer", "bucket_unavailable"));
    worker().before_next("save_state", fail);
  };
  worker().before_next("save_state", fail);
  const auto saves = [&] { return worker().calls_of("save_state").size(); };
  for (int i = 0; i < 9; ++i) {
    step(run);
    advance(2 * kSecond);
  }
  EXPECT_EQ(saves(), 1U);
  worker().before_next("save_state", [] {});
  advance(3 * kSlow);
  EXPECT_EQ(saves(), 1U);
  worker().drain(20 * kSecond);
  sweep_until([&] { return worker().left() == worker().incarnation(); });
  EXPECT_EQ(saves(), 2U) << "a worker that ends is not made to wait";
  worker().restart();
  step(run);
  EXPECT_EQ(worker().weights_of(run.str()), 10);
}

// What a long journal asks for cannot be saved before the run is restored.
TEST_F(Replay, ARunWithALongJournalThatCannotComeBackForNowCanBeUnloaded) {
  shorten_journals();
  const RunId run = boot_with_run();
  worker().before_next("save_state", [this] { worker().hold_answers(true); });
  for (int i = 0; i < 6; ++i) step(run);
  sweep_until([&] { return worker().held() == 1; });
  worker().hold_answers(false);
  worker().die();
  worker().fail_next("create_adapter", Error{ErrorCode::kResourceExhausted, "full", "adapter_memory_bytes"});
  worker().start();
  clock().advance(2 * kSecond);  // the next try to save is due, that to restore is not
  const RequestId unload = plane().unload_model(alice, run, no_trace)->request;
  EXPECT_FALSE(pending(alice, unload));
}

TEST_F(ReplayElsewhere, TheRunsOfALostWorkerGoOnAtAnother) {
  const RunId run = boot_with_run();
  step(run);
  pass(run);
  FakeActor& from = home(run);
  from.hold_answers(true);
  const RequestId running = optim_step(run, alice, next());
  from.die();
  let_last(3 * kSecond);
  value<OptimStepResult>(alice, running);
  EXPECT_EQ(other(from).weights_of(run.str()), 2);
}

TEST_F(ReplayJoined, AWorkerThatWasAwayTooLongFindsItsRunElsewhereAndNothingIsLost) {
  const RunId run = boot_with_run();
  step(run);
  FakeActor& from = home(run);
  from.hold_answers(true);
  const RequestId running = optim_step(run, alice, next());
  from.disconnect();
  from.hold_answers(false);
  let_last(3 * kSecond);
  value<OptimStepResult>(alice, running);
  EXPECT_EQ(other(from).weights_of(run.str()), 2);
  from.start();
  EXPECT_EQ(from.adapters(), 0U) << "it has made the step as well";
  step(run);
  EXPECT_EQ(other(from).weights_of(run.str()), 3);
}

TEST_F(ReplayJoined, ARunThatASecondServerTakesOverIsSavedAtTheEndOfItsNextStep) {
  keep_state();
  config().supported_models[0].workers = 1;
  const RunId run = boot_with_run();
  step(run);
  crash_and_come_back();
  EXPECT_EQ(worker().weights_of(run.str()), 1);
  step(run);
  sweep_until([&] { return worker().calls_of("save_state").size() == 1; });
  step(run);
  worker().restart();
  step(run);
  EXPECT_EQ(worker().weights_of(run.str()), 4);
}

}  // namespace
}  // namespace tuft::control
