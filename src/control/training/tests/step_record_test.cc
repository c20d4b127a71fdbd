// Tests what the telemetry store learns of the steps of a run.
#include <cmath>

#include <gtest/gtest.h>

#include "control/tests/plane.h"
#include "control/tests/recording_store.h"

namespace tuft::control {
namespace {

class StepRecord : public PlaneTest {
 protected:
  StepRecord() { keep_telemetry(&store_); }
  ~StepRecord() override { close(); }

  RecordingStore store_;
};

TEST_F(StepRecord, StepsOfARunThenEachIsThereWithItsLossAndItsTimes) {
  const RunId run = boot_with_run();
  worker().set_loss(6.0, 2.0);
  advance(5 * kSecond);  // the client prepares its batch
  value<ProtobufResult>(alice, forward_backward(run, alice, 1));
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  worker().set_loss(1.0, 2.0);
  worker().hold_answers(true);
  const RequestId pass = forward_backward(run, alice, 3);
  const RequestId step = optim_step(run, alice, 4);
  advance(2 * kSecond);  // the pass executes
  worker().stop_holding();
  value<ProtobufResult>(alice, pass);
  value<OptimStepResult>(alice, step);

  const auto steps = store_.steps();
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].run, run.str());
  EXPECT_EQ(steps[0].owner, "alice");
  EXPECT_EQ(steps[0].loss, 3.0);
  EXPECT_EQ(steps[0].grad_norm, 0.5);
  EXPECT_NEAR(steps[0].idle_seconds, 5, 1e-6);
  EXPECT_NEAR(steps[0].pass_seconds, 0, 1e-6);
  EXPECT_EQ(steps[1].loss, 0.5);
  EXPECT_NEAR(steps[1].idle_seconds, 0, 1e-6);
  EXPECT_NEAR(steps[1].pass_seconds, 2, 1e-6);
  EXPECT_GE(steps[1].time, steps[0].time);
}

TEST_F(StepRecord, WorkerIsBusyThenTheTimeInItsQueueIsAWait) {
  const RunId run = boot_with_run();
  worker().set_queue_seconds(1.5);
  worker().hold_answers(true);
  const RequestId pass = forward_backward(run, alice, 1);
  advance(2 * kSecond);
  worker().stop_holding();
  worker().set_queue_seconds(0);
  value<ProtobufResult>(alice, pass);
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  ASSERT_EQ(store_.steps().size(), 1u);
  EXPECT_NEAR(store_.steps()[0].pass_seconds, 0.5, 1e-6);
  EXPECT_NEAR(store_.steps()[0].wait_seconds, 1.5, 1e-6);
}

TEST_F(StepRecord, OperationWaitsForAMissingNumberThenThatIsAWait) {
  const RunId run = boot_with_run();
  const RequestId step = optim_step(run, alice, 2);
  advance(3 * kSecond);
  value<ProtobufResult>(alice, forward_backward(run, alice, 1));
  value<OptimStepResult>(alice, step);
  ASSERT_EQ(store_.steps().size(), 1u);
  EXPECT_NEAR(store_.steps()[0].wait_seconds, 3, 1e-6);
  EXPECT_NEAR(store_.steps()[0].idle_seconds, 0, 1e-6);
}

TEST_F(StepRecord, NoStepIsTakenThenTheOneBeforeKeepsItsRecord) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  worker().set_without_gradient(true);
  value<OptimStepResult>(alice, optim_step(run, alice, 2));
  worker().set_without_gradient(false);
  worker().set_nonfinite_gradient(true);
  value<OptimStepResult>(alice, optim_step(run, alice, 3));
  EXPECT_EQ(store_.steps().size(), 1U);
}

TEST_F(StepRecord, NoPassBeforeTheStepThenThereIsNoLoss) {
  const RunId run = boot_with_run();
  value<OptimStepResult>(alice, optim_step(run, alice, 1));
  ASSERT_EQ(store_.steps().size(), 1u);
  EXPECT_TRUE(std::isnan(store_.steps()[0].loss));
}

}  // namespace
}  // namespace tuft::control
