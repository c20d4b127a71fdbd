// Tests of base models with several workers: where runs live, and when and how they move.
#include "control/training/run_placement.h"

#include "control/tests/plane.h"

namespace tuft::control {
namespace {

class Placement : public PlaneTest {
 protected:
  Placement() { config().supported_models[0].workers = 2; }

  // Returns two runs with a step each. The save of one to leave the first worker has failed, and the other one is at
  // the second worker now.
  std::pair<RunId, RunId> boot_where_a_save_has_failed() {
    boot(false);
    worker(0).start();
    const SessionId own = session(alice);
    const RunId one = create_model(own, alice, 0);
    const RunId two = create_model(own, alice, 1);
    value<OptimStepResult>(alice, optim_step(one, alice, 1));
    value<OptimStepResult>(alice, optim_step(two, alice, 1));
    worker(0).fail_next("save_state", internal_error("the disk is full"));
    worker(1).start();
    let_last(RunPlacement::kSteady);
    sweep_until([&] { return worker(1).adapters() == 1 && worker(0).adapters() == 1; });
    return {one, two};
  }
};

TEST_F(Placement, NewRunsSpreadByTheMemoryThatTheyTake) {
  const SessionId own = boot_with_session();
  create_model(own, alice, 0, 16);
  create_model(own, alice, 1, 8);
  create_model(own, alice, 2, 8);
  EXPECT_EQ(worker(0).adapters() + worker(1).adapters(), 3U);
  EXPECT_EQ(std::min(worker(0).adapters(), worker(1).adapters()), 1U);
  EXPECT_EQ(home(RunId(own.str() + ":train:1")).adapters(), 2U);
}

TEST_F(Placement, ANewRunGoesToTheWorkerThatTrainedLess) {
  const SessionId own = boot_with_session();
  const RunId busy = create_model(own, alice, 0);
  const RunId idle = create_model(own, alice, 1);
  ASSERT_NE(&home(busy), &home(idle));
  value<ProtobufResult>(alice, forward_backward(busy, alice, 1));
  EXPECT_EQ(&home(create_model(own, alice, 2)), &home(idle));
}

TEST_F(Placement, AWorkerThatIsNotThereGetsNoRun) {
  boot(false);
  worker(1).start();
  const SessionId own = session(alice);
  for (int seq = 0; seq < 4; ++seq) create_model(own, alice, seq);
  EXPECT_EQ(worker(0).adapters(), 0U);
  EXPECT_EQ(worker(1).adapters(), 4U);
}

TEST_F(Placement, ALostWorkersRunsComeBackAtAnotherFromTheirNewestCheckpoints) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  value<SaveWeightsResult>(alice, save(run, alice, 2));
  FakeActor& from = home(run);
  from.die();
  const RequestId waits = optim_step(run, alice, 3);
  advance(RunPlacement::kAway / 2);
  EXPECT_EQ(other(from).adapters(), 0U) << "its worker may come back";
  advance(RunPlacement::kAway);
  sweep_until([&] { return !pending(alice, waits); });
  value<OptimStepResult>(alice, waits);
  EXPECT_EQ(other(from).weights_of(run.str()), 2);
  from.start();
  value<OptimStepResult>(alice, optim_step(run, alice, 4));
  EXPECT_EQ(other(from).weights_of(run.str()), 3) << "it stays there";
  EXPECT_EQ(from.adapters(), 0U);
}

TEST_F(Placement, WhatALostWorkerHadNotSavedIsToldOnce) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  FakeActor& from = home(run);
  from.die();
  let_last(RunPlacement::kAway);
  sweep_until([&] { return other(from).adapters() == 1; });
  EXPECT_EQ(failure(alice, optim_step(run, alice, 2)).reason, "weights_rolled_back");
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  EXPECT_EQ(other(from).weights_of(run.str()), 1);
}

TEST_F(Placement, ASilentWorkerKeepsItsRuns) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  FakeActor& from = home(run);
  from.set_ready(false);
  advance(kMillisecond);
  advance(10 * RunPlacement::kAway);
  EXPECT_EQ(other(from).adapters(), 0U);
  from.set_ready(true);
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  EXPECT_EQ(from.weights_of(run.str()), 2);
}

TEST_F(Placement, ARunOfAWorkerThatEndsMovesWithItsWeightsAndItsQueue) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  value<ProtobufResult>(alice, forward_backward(run, alice, 2));
  FakeActor& from = home(run);
  from.drain(20 * kSecond);
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  const RequestId first = optim_step(run, alice, 4);
  const RequestId second = optim_step(run, alice, 5);
  sweep_until([&] { return !pending(alice, second); });
  value<OptimStepResult>(alice, first);
  value<OptimStepResult>(alice, second);
  EXPECT_EQ(other(from).weights_of(run.str()), 4);
  sweep_until([&] { return from.left() != 0; });
}

TEST_F(Placement, RunsMoveToAWorkerThatComesLaterOneAtATimeWithoutALoss) {
  boot(false);
  worker(0).start();
  const SessionId own = session(alice);
  std::vector<RunId> runs;
  for (int seq = 0; seq < 4; ++seq) runs.push_back(create_model(own, alice, seq));
  for (const RunId& run : runs) value<OptimStepResult>(alice, optim_step(run, alice, 1));
  value<ProtobufResult>(alice, forward_backward(runs[0], alice, 2));
  worker(1).start();
  let_last(RunPlacement::kSteady);
  sweep_until([&] { return worker(1).adapters() == 2; });
  sweep_until([&] { return worker(0).adapters() == 2; });
  for (int i = 0; i < 100; ++i) advance(kMillisecond);
  EXPECT_EQ(worker(1).adapters(), 2U) << "they do not go to and fro";
  value<OptimStepResult>(alice, optim_step(runs[0], alice, 3));
  EXPECT_EQ(home(runs[0]).weights_of(runs[0].str()), 2);
  for (const RunId& run : {runs[1], runs[2], runs[3]}) value<OptimStepResult>(alice, optim_step(run, alice, 2));
}

// A client that never ends its step must not hold the others up.
TEST_F(Placement, ARunThatCanLeaveAtOnceGoesFirst) {
  boot(false);
  worker(0).start();
  const SessionId own = session(alice);
  const RunId stuck = create_model(own, alice, 0);
  value<ProtobufResult>(alice, forward_backward(stuck, alice, 1));
  const RunId free = create_model(own, alice, 1);
  worker(1).start();
  let_last(RunPlacement::kSteady);
  sweep_until([&] { return worker(1).adapters() == 1; });
  EXPECT_EQ(worker(1).calls_of("create_adapter").front(), "create_adapter " + free.str());
}

TEST_F(Placement, ARunThatMovedForBalanceRests) {
  boot(false);
  worker(0).start();
  const SessionId own = session(alice);
  std::vector<RunId> runs;
  for (int seq = 0; seq < 4; ++seq) runs.push_back(create_model(own, alice, seq));
  worker(1).start();
  let_last(RunPlacement::kSteady);
  sweep_until([&] { return worker(1).adapters() == 2 && worker(0).adapters() == 2; });
  for (const RunId& run : runs) {
    if (&home(run) == &worker(0) && worker(1).calls_of("create_adapter").front() != "create_adapter " + run.str() &&
        worker(1).calls_of("create_adapter").back() != "create_adapter " + run.str()) {
      const auto unloaded = plane().unload_model(alice, run, no_trace);
      ASSERT_TRUE(unloaded.ok());
      wait(alice, unloaded->request).value();
    }
  }
  ASSERT_EQ(worker(0).adapters(), 0U);
  for (int i = 0; i < 20; ++i) advance(kSecond);
  EXPECT_EQ(worker(1).adapters(), 2U);
  advance(RunPlacement::kRest);
  sweep_until([&] { return worker(0).adapters() == 1; });
}

TEST_F(Placement, ARunWhoseGradientIsNotAppliedStays) {
  boot(false);
  worker(0).start();
  const SessionId own = session(alice);
  std::vector<RunId> runs;
  for (int seq = 0; seq < 2; ++seq) {
    runs.push_back(create_model(own, alice, seq));
    value<ProtobufResult>(alice, forward_backward(runs.back(), alice, 1));
  }
  worker(1).start();
  let_last(RunPlacement::kSteady);
  EXPECT_EQ(worker(1).adapters(), 0U);
  advance(RunPlacement::kLeaveTime);
  value<OptimStepResult>(alice, optim_step(runs[0], alice, 2));
  value<OptimStepResult>(alice, optim_step(runs[1], alice, 2));
  sweep_until([&] { return worker(1).adapters() == 1; });
}

TEST_F(Placement, ASaveThatFailsLetsTheRunStay) {
  const auto [one, two] = boot_where_a_save_has_failed();
  EXPECT_EQ(worker(0).calls_of("save_state").size(), 2U) << "the other one moves instead";
  // What failed is over: a gradient that comes now is not given up.
  value<ProtobufResult>(alice, forward_backward(one, alice, 2));
  value<ProtobufResult>(alice, forward_backward(two, alice, 2));
  for (int i = 0; i < 5; ++i) advance(kSecond);
  value<OptimStepResult>(alice, optim_step(one, alice, 3));
  value<OptimStepResult>(alice, optim_step(two, alice, 3));
  EXPECT_EQ(home(one).weights_of(one.str()) + home(two).weights_of(two.str()), 4);
}

TEST_F(Placement, ARunThatCouldNotLeaveEndsItsStepWhenItsWorkerEnds) {
  const auto [one, two] = boot_where_a_save_has_failed();
  const RunId stayed = worker(0).weights_of(one.str()) >= 0 ? one : two;
  value<ProtobufResult>(alice, forward_backward(stayed, alice, 2));
  worker(0).drain(20 * kSecond);
  advance(kSecond);
  const RequestId step = optim_step(stayed, alice, 3);
  ASSERT_FALSE(pending(alice, step));
  value<OptimStepResult>(alice, step);
  sweep_until([&] { return worker(1).weights_of(stayed.str()) == 2; });
  value<OptimStepResult>(alice, optim_step(stayed, alice, 4));
}

TEST_F(Placement, AGradientAloneDoesNotKeepARunAtAWorkerThatEnds) {
  const RunId run = boot_with_run();
  value<ProtobufResult>(alice, forward_backward(run, alice, 1));
  FakeActor& from = home(run);
  from.drain(20 * kSecond);
  advance(kSecond);
  EXPECT_EQ(from.adapters(), 1U) << "it may end its step";
  advance(15 * kSecond);
  EXPECT_EQ(other(from).adapters(), 1U);
  EXPECT_EQ(failure(alice, optim_step(run, alice, 2)).reason, "weights_rolled_back");
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
}

// The operations of a run may have waited for their turn for long when it moves.
TEST_F(Placement, OldOperationsOfARunThatMovesAreNotGivenUp) {
  const RunId run = boot_with_run();
  FakeActor& from = home(run);
  from.hold_answers(true);
  std::vector<RequestId> steps;
  for (int seq = 1; seq <= 3; ++seq) steps.push_back(optim_step(run, alice, seq));
  advance(2 * kWorkerWait);
  other(from).hold_answers(true);
  from.drain(20 * kSecond);
  from.stop_holding();
  sweep_until([&] { return other(from).held() == 1; });
  for (int i = 0; i < 5; ++i) advance(kSecond);
  other(from).stop_holding();
  for (const RequestId& step : steps) value<OptimStepResult>(alice, step);
  EXPECT_EQ(other(from).weights_of(run.str()), 3);
}

TEST_F(Placement, ARunThatMovesForBalanceGoesToTheEmptiestWorkerAndNotToTheIdlest) {
  config().supported_models[0].workers = 3;
  boot(false);
  worker(0).start();
  worker(1).start();
  const SessionId own = session(alice);
  std::vector<RunId> runs;
  for (int seq = 0; seq < 8; ++seq) runs.push_back(create_model(own, alice, seq));
  ASSERT_EQ(worker(0).adapters(), 4U);
  worker(2).start();
  for (const RunId& run : runs) value<ProtobufResult>(alice, forward_backward(run, alice, 1));
  for (const RunId& run : runs) value<OptimStepResult>(alice, optim_step(run, alice, 2));
  let_last(RunPlacement::kSteady);
  sweep_until([&] { return worker(2).adapters() == 2; });
  for (int i = 0; i < 40; ++i) advance(kSecond);
  EXPECT_EQ(worker(0).adapters() + worker(1).adapters(), 6U);
  EXPECT_EQ(worker(2).adapters(), 2U);
}

TEST_F(Placement, AnEmptyPlaceDoesNotStopTheBalance) {
  config().supported_models[0].workers = 3;
  boot(false);
  worker(0).start();
  const SessionId own = session(alice);
  for (int seq = 0; seq < 4; ++seq) create_model(own, alice, seq);
  worker(1).start();
  let_last(RunPlacement::kSteady);
  sweep_until([&] { return worker(1).adapters() == 2 && worker(0).adapters() == 2; });
}

TEST_F(Placement, TheRunsOfTheUserWhoMakesTheDifferenceMove) {
  boot(false);
  worker(0).start();
  const RunId small = create_model(session(bob), bob);
  const SessionId own = session(alice);
  for (int seq = 0; seq < 3; ++seq) create_model(own, alice, seq);
  worker(1).start();
  let_last(RunPlacement::kSteady);
  sweep_until([&] { return worker(1).adapters() == 2 && worker(0).adapters() == 2; });
  EXPECT_EQ(&home(small), &worker(0));
}

TEST_F(Placement, EachSaveOfARunThatMovesReplacesTheOneBefore) {
  const RunId run = boot_with_run();
  for (int move = 0; move < 3; ++move) {
    value<OptimStepResult>(alice, optim_step(run, alice, move + 1));
    FakeActor& from = worker(0).adapters() == 1 ? worker(0) : worker(1);
    from.drain(20 * kSecond);
    sweep_until([&] { return other(from).adapters() == 1 && from.left() != 0; });
    from.restart();
    advance(2 * kSecond);
  }
  settle();
  EXPECT_EQ(names_in(folder(run)).size(), 1U);
}

TEST_F(Placement, AWorkerWithoutRoomIsAskedAgain) {
  const RunId run = boot_with_run();
  value<SaveWeightsResult>(alice, save(run, alice, 1));
  FakeActor& from = home(run);
  other(from).fail_next("create_adapter", Error{ErrorCode::kResourceExhausted, "no room", "adapter_page_bytes"});
  from.die();
  let_last(RunPlacement::kAway);
  sweep_until([&] { return !other(from).calls_of("create_adapter").empty(); });
  advance(10 * kSecond);
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
}

TEST_F(Placement, AfterARestartOfTheServerRunsGoWhereAWorkerIs) {
  keep_state();
  const SessionId own = boot_with_session();
  std::vector<RunId> runs;
  for (int seq = 0; seq < 4; ++seq) {
    runs.push_back(create_model(own, alice, seq));
    value<SaveWeightsResult>(alice, save(runs.back(), alice, 1));
  }
  ASSERT_TRUE(durable().ok());
  crash();
  boot(false);
  worker(1).start();
  let_last(RunPlacement::kAway);
  for (const RunId& run : runs) value<OptimStepResult>(alice, optim_step(run, alice, 2));
  EXPECT_EQ(worker(1).adapters(), 4U);
}

TEST_F(Placement, TheServerIsReadyWhileOneWorkerIs) {
  boot(false);
  EXPECT_FALSE(plane().ready());
  worker(1).start();
  EXPECT_TRUE(plane().ready());
  worker(1).die();
  EXPECT_FALSE(plane().ready());
}

}  // namespace
}  // namespace tuft::control
