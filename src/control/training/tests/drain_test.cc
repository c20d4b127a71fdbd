// Tests of a worker that is told to end: what is saved, what waits, and what clients are told.
#include <future>
#include <set>
#include <string>
#include <thread>

#include "control/tests/plane.h"

namespace tuft::control {
namespace {

constexpr Nanos kLimit = 20 * kSecond;
constexpr Nanos kGradientLimit = 15 * kSecond;

class Drain : public PlaneTest {
 protected:
  size_t saves() { return worker().calls_of("save_state").size(); }
  // The save is written on another thread.
  void let_worker_go() {
    sweep_until([&] { return worker().left() == worker().incarnation(); });
    worker().restart();
  }
  // Returns a run that the worker has left, and that was saved by the server; its session goes on for days.
  RunId saved_run() {
    keep_state();
    config().limits.session_idle_seconds = 7 * 24 * 3600;
    const RunId run = boot_with_run();
    value<OptimStepResult>(alice, optim_step(run, alice, 1));
    worker().drain(kLimit);
    let_worker_go();
    EXPECT_EQ(names_in(folder(run)).size(), 1U);
    return run;
  }
  static constexpr Nanos kLonger = 25 * 3600 * kSecond;  // than such a checkpoint stays by itself
};

TEST_F(Drain, ARunGoesOnInTheNextWorkerAsIfNothingHadHappened) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  worker().drain(kLimit);
  const RequestId waits = optim_step(run, alice, 3);
  let_worker_go();
  value<OptimStepResult>(alice, waits);
  EXPECT_EQ(worker().calls_of("load_state"), std::vector<std::string>{"load_state " + run.str() + " +optimizer"});
  EXPECT_EQ(worker().weights_of(run.str()), 3);
  const auto names = names_in(folder(run));
  ASSERT_EQ(names.size(), 1U);
  EXPECT_TRUE(names.begin()->starts_with("moved-")) << *names.begin();
}

TEST_F(Drain, WhatIsSavedStaysWhileItsRunWouldBeRestoredFromIt) {
  const RunId run = saved_run();
  advance(kLonger);
  settle();
  crash_and_boot();
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  EXPECT_EQ(worker().weights_of(run.str()), 2);
  // The new process knows that the checkpoint is not the client's.
  value<SaveWeightsResult>(alice, save(run, alice, 3, "own"));
  settle();
  EXPECT_EQ(names_in(folder(run)), std::set<std::string>{"own"});
}

TEST_F(Drain, WhatIsSavedExpiresWhenItsRunIsGone) {
  const RunId run = saved_run();
  value<UnloadModelResult>(alice, plane().unload_model(alice, run, no_trace)->request);
  settle();
  EXPECT_EQ(names_in(folder(run)).size(), 1U);
  advance(kLonger);
  settle();
  EXPECT_TRUE(names_in(folder(run)).empty());
}

TEST_F(Drain, AUserDecidesWhenItExpires) {
  const RunId run = saved_run();
  const CheckpointPath path{run, CheckpointKind::kTraining, *names_in(folder(run)).begin()};
  std::promise<Status> set;
  plane().checkpoint_actions().set_ttl(alice, path, 10, no_trace, [&](const Status& status) { set.set_value(status); });
  ASSERT_TRUE(set.get_future().get().ok());
  EXPECT_TRUE(plane().weights_info(alice, path.str()).ok());
  advance(20 * kSecond);
  settle();
  EXPECT_FALSE(plane().weights_info(alice, path.str()).ok());  // its files stay while the run can be restored from them
}

TEST_F(Drain, WhatItsUserKeepsIsNotReplaced) {
  const RunId run = saved_run();
  const CheckpointPath path{run, CheckpointKind::kTraining, *names_in(folder(run)).begin()};
  std::promise<Status> set;
  plane().checkpoint_actions().set_ttl(alice, path, {}, no_trace, [&](const Status& status) { set.set_value(status); });
  ASSERT_TRUE(set.get_future().get().ok());
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  advance(kSecond);  // the names have the time
  worker().drain(kLimit);
  let_worker_go();
  EXPECT_EQ(worker().weights_of(run.str()), 2);
  value<LoadWeightsResult>(alice, load(run, alice, 3, path.str()));
  EXPECT_EQ(worker().weights_of(run.str()), 1);
}

TEST_F(Drain, WhatTheServerSavesIsNotCountedAsUsage) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  worker().drain(kLimit);
  let_worker_go();
  ASSERT_EQ(saves(), 1U);
  for (const UsageEvent& event : plane().usage().events(alice, 0, clock().wall() + 3600 * kSecond)) {
    EXPECT_NE(event.kind, UsageKind::kCheckpoint);
  }
}

TEST_F(Drain, AStepIsEndedBeforeItIsSaved) {
  const RunId run = boot_with_run();
  value<ProtobufResult>(alice, forward_backward(run, alice, 1));
  worker().drain(kLimit);
  advance(kSecond);
  EXPECT_EQ(saves(), 0U);
  EXPECT_EQ(worker().left(), 0U);
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  const RequestId next = forward_backward(run, alice, 3);
  let_worker_go();
  value<ProtobufResult>(alice, next);
  value<OptimStepResult>(alice, optim_step(run, alice, 4));
  EXPECT_EQ(worker().weights_of(run.str()), 2);
}

TEST_F(Drain, ItGoesOnWhenTheWorkerIsBackAfterItsConnectionBroke) {
  config().supported_models[0].worker = config::WorkerKind::kJoined;
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  value<ProtobufResult>(alice, forward_backward(run, alice, 2));
  worker().drain(kLimit);
  worker().disconnect();
  worker().before_next("list_holdings", [this] {
    worker().drain(kLimit);
    plane().sweep();
  });
  worker().start();
  EXPECT_EQ(worker().left(), 0U) << "what it holds was not known yet";
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  let_worker_go();
  EXPECT_EQ(saves(), 1U);
  value<OptimStepResult>(alice, optim_step(run, alice, 4));
  EXPECT_EQ(worker().weights_of(run.str()), 3);
}

TEST_F(Drain, AGradientIsGivenUpWhenTheTimeRunsOutAndTheClientIsTold) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  value<ProtobufResult>(alice, forward_backward(run, alice, 2));
  worker().drain(kLimit);
  EXPECT_EQ(saves(), 0U);
  advance(kGradientLimit);
  let_worker_go();
  const Error told = failure(alice, optim_step(run, alice, 3));
  EXPECT_EQ(told.reason, "weights_rolled_back");
  EXPECT_NE(told.message.find("without the gradient"), std::string::npos) << told.message;
  EXPECT_EQ(worker().weights_of(run.str()), 1);
}

TEST_F(Drain, PassesThatDoNotEndAStepDoNotHoldTheSaveUp) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  worker().hold_answers(true);
  for (int32_t seq = 2; seq < 12; ++seq) forward_backward(run, alice, seq);
  worker().drain(kLimit);
  ASSERT_TRUE(worker().answer_next());
  clock().advance(kGradientLimit);
  worker().stop_holding();
  let_worker_go();
  EXPECT_EQ(worker().weights_of(run.str()), 1);
  EXPECT_LT(worker().calls_of("forward_backward").size(), 10U);
}

TEST_F(Drain, NothingStartsAfterTheSave) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  value<ProtobufResult>(alice, forward_backward(run, alice, 2));
  worker().drain(kLimit);
  advance(kGradientLimit);
  const RequestId late = optim_step(run, alice, 3);
  let_worker_go();
  EXPECT_EQ(failure(alice, late).reason, "weights_rolled_back");
}

TEST_F(Drain, ASaveThatFailsIsTriedAgain) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  worker().fail_next("save_state", internal_error("the disk is full"));
  worker().drain(kLimit);
  let_worker_go();
  EXPECT_EQ(worker().weights_of(run.str()), 1);
}

// The save is not an operation of the client, so that its failure tells the client nothing.
TEST_F(Drain, AWorkerThatDiesInTheSaveIsTold) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  worker().hold_answers(true);
  worker().drain(kLimit);
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (worker().held() == 0 && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
  worker().hold_answers(false);
  worker().restart();
  EXPECT_EQ(failure(alice, optim_step(run, alice, 2)).reason, "weights_rolled_back");
}

TEST_F(Drain, NoQuotaStopsTheSave) {
  config().limits.checkpoints_per_user_max = 1;
  const RunId run = boot_with_run();
  value<SaveWeightsResult>(alice, save(run, alice, 1, "one"));
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  worker().drain(kLimit);
  let_worker_go();
  EXPECT_EQ(worker().weights_of(run.str()), 1);
}

TEST_F(Drain, AGradientAloneDoesNotHoldTheWorkerToTheEnd) {
  const RunId run = boot_with_run();
  value<ProtobufResult>(alice, forward_backward(run, alice, 1));
  worker().drain(kLimit);
  advance(kGradientLimit);
  EXPECT_EQ(worker().left(), worker().incarnation());
  EXPECT_EQ(saves(), 0U);
}

TEST_F(Drain, AnOperationAtTheWorkerIsWaitedFor) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  const RequestId step = optim_step(run, alice, 1);
  worker().drain(kLimit);
  advance(kSecond);
  EXPECT_EQ(saves(), 0U);
  worker().stop_holding();
  value<OptimStepResult>(alice, step);
  let_worker_go();
  EXPECT_EQ(worker().weights_of(run.str()), 1);
}

TEST_F(Drain, AWorkerThatHoldsNothingNewGoesAtOnce) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  value<SaveWeightsResult>(alice, save(run, alice, 2, "one"));
  worker().clear_calls();
  worker().drain(kLimit);
  sweep_until([&] { return worker().left() == worker().incarnation(); });
  EXPECT_EQ(saves(), 0U);
}

TEST_F(Drain, AWorkerThatCannotBeSavedGoesWhenItsTimeIsOver) {
  const RunId run = boot_with_run();
  worker().hold_answers(true);
  optim_step(run, alice, 1);
  worker().drain(kLimit);
  advance(kLimit - kSecond);
  EXPECT_EQ(worker().left(), 0U);
  advance(2 * kSecond);
  EXPECT_EQ(worker().left(), worker().incarnation());
  worker().hold_answers(false);
  worker().restart();
  EXPECT_EQ(worker().weights_of(run.str()), 0);
}

TEST_F(Drain, SamplesWaitForTheNextWorker) {
  const SessionId s = boot_with_session();
  const SamplerId sampler = *try_sampler(s, alice, 0, model);
  worker().drain(kLimit);
  const RequestId sampled = sample(sampler, alice, 1);
  EXPECT_TRUE(pending(alice, sampled));
  EXPECT_TRUE(worker().calls_of("sample").empty());
  let_worker_go();
  value<ProtobufResult>(alice, sampled);
}

TEST_F(Drain, ANewModelIsMadeInTheNextWorker) {
  const SessionId s = boot_with_session();
  worker().drain(kLimit);
  const RequestId create = submit_create(s, alice);
  EXPECT_TRUE(pending(alice, create));
  let_worker_go();
  value<CreateModelResult>(alice, create);
}

}  // namespace
}  // namespace tuft::control
