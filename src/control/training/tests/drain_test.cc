// Tests of a worker that is told to end: what is saved, what waits, and what clients are told.
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
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (worker().left() == 0 && std::chrono::steady_clock::now() < give_up) {
      advance(kMillisecond);
      std::this_thread::yield();
    }
    ASSERT_EQ(worker().left(), worker().incarnation());
    worker().restart();
  }
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
  advance(kMillisecond);
  EXPECT_EQ(worker().left(), worker().incarnation());
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
