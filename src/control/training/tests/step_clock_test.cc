#include "control/training/step_clock.h"

#include <cmath>

#include <gtest/gtest.h>

namespace tuft::control {
namespace {

using Work = StepClock::Work;

Nanos sum_of(const StepSpan& span) {
  return span.passes + span.step + span.saves + span.waiting + span.idle;
}

// A pass or another operation that starts when it is placed.
void execute(StepClock& clock, Work work, Nanos begin, Nanos end, Nanos waited = 0) {
  clock.placed(begin);
  clock.started(begin);
  clock.ended(work, waited, end);
}

TEST(StepClock, OperationsOneByOneThenEachTimeBelongsToItsKind) {
  StepClock clock;
  execute(clock, Work::kCreate, 100, 150);
  execute(clock, Work::kPass, 160, 200, 10);  // 10 idle, 10 in the worker's queue
  execute(clock, Work::kSave, 205, 220);
  clock.placed(230);
  clock.started(237);  // its turn came 7 later
  const StepSpan span = clock.end_step(2, 250);
  EXPECT_EQ(span.passes, 30);
  EXPECT_EQ(span.saves, 15);
  EXPECT_EQ(span.step, 11);
  EXPECT_EQ(span.waiting, 10 + 7 + 2);
  EXPECT_EQ(span.idle, 10 + 5 + 10);
  EXPECT_EQ(sum_of(span), 100) << "from the run's creation to the end of the step";
}

TEST(StepClock, ClientSendsAheadThenNothingIsIdle) {
  StepClock clock;
  execute(clock, Work::kCreate, 0, 1);
  clock.placed(1);
  clock.placed(1);
  clock.started(1);
  clock.ended(Work::kPass, 0, 50);
  clock.started(53);
  const StepSpan span = clock.end_step(0, 60);
  EXPECT_EQ(span.idle, 0);
  EXPECT_EQ(span.waiting, 3);
  EXPECT_EQ(span.passes, 49);
  EXPECT_EQ(span.step, 7);
}

TEST(StepClock, SecondStepThenOnlyWhatCameAfterTheFirst) {
  StepClock clock;
  execute(clock, Work::kCreate, 0, 1);
  clock.placed(1);
  clock.started(1);
  clock.end_step(0, 20);
  clock.ended(Work::kStep, 0, 21);
  clock.placed(41);
  clock.started(41);
  const StepSpan span = clock.end_step(0, 45);
  EXPECT_EQ(sum_of(span), 25);
  EXPECT_EQ(span.idle, 20);
  EXPECT_EQ(span.step, 1 + 4);
}

TEST(StepClock, OperationThatNeverStartsThenItsTimeWasWaiting) {
  StepClock clock;
  execute(clock, Work::kCreate, 0, 1);
  clock.placed(11);
  clock.dropped(31);
  clock.placed(36);
  clock.started(36);
  const StepSpan span = clock.end_step(0, 40);
  EXPECT_EQ(span.idle, 10 + 5);
  EXPECT_EQ(span.waiting, 20);
}

TEST(StepClock, FailedStepThenItsTimeCountsInTheNext) {
  StepClock clock;
  execute(clock, Work::kCreate, 0, 1);
  execute(clock, Work::kStep, 1, 8);
  clock.placed(8);
  clock.started(8);
  EXPECT_EQ(clock.end_step(0, 10).step, 9);
}

TEST(StepClock, PassesThenTheMeanOverTheirWeights) {
  StepClock clock;
  clock.add_pass(6.0, 2, 100);
  clock.add_pass(3.0, 1, 50);
  clock.add_pass(std::nullopt, 5, 7);
  clock.add_pass(std::nan(""), 5, 1);
  const StepSpan span = clock.end_step(0, 1);
  EXPECT_EQ(span.loss(), 3.0);
  EXPECT_EQ(span.tokens, 158);
  EXPECT_TRUE(std::isnan(clock.end_step(0, 2).loss()));
}

TEST(StepClock, WorkerReportsALongerWaitThanTheExecutionThenItIsCut) {
  StepClock clock;
  execute(clock, Work::kCreate, 0, 1);
  execute(clock, Work::kPass, 1, 5, 100);
  const StepSpan span = clock.end_step(0, 5);
  EXPECT_EQ(span.waiting, 4);
  EXPECT_EQ(span.passes, 0);
}

}  // namespace
}  // namespace tuft::control
