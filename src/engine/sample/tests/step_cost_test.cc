#include "engine/sample/step_cost.h"

#include <cmath>

#include <gtest/gtest.h>

namespace tuft::engine {
namespace {

Nanos time_of(Nanos fixed, Nanos per_token, size_t tokens) {
  return fixed + per_token * static_cast<Nanos>(tokens);
}

TEST(StepCost, FindsHowManyTokensTheFixedPartIsWorth) {
  StepCost cost;
  for (size_t tokens = 1; tokens < 40; ++tokens) cost.stepped(tokens, time_of(90'000, 6'000, tokens));
  ASSERT_TRUE(cost.fixed_in_tokens());
  EXPECT_NEAR(*cost.fixed_in_tokens(), 15, 1e-6);
}

TEST(StepCost, SaysNothingBeforeThereWereStepsOfDifferentSizes) {
  StepCost cost;
  EXPECT_FALSE(cost.fixed_in_tokens());
  for (int i = 0; i < 100; ++i) cost.stepped(64, 1'000'000 + i);
  EXPECT_FALSE(cost.fixed_in_tokens());
}

TEST(StepCost, KeepsWhatItKnowsWhileAllStepsHaveOneSize) {
  StepCost cost;
  for (size_t tokens = 1; tokens < 40; ++tokens) cost.stepped(tokens, time_of(90'000, 6'000, tokens));
  for (int i = 0; i < 10'000; ++i) cost.stepped(64, time_of(90'000, 6'000, 64) + i % 7);
  EXPECT_NEAR(cost.fixed_in_tokens().value_or(0), 15, 0.1);
}

// As one user keeps the engine at work with many samples: their times say little about the fixed part.
TEST(StepCost, StillKnowsSmallStepsAfterManyLargeOnesOfUnevenTimes) {
  StepCost cost;
  for (int i = 0; i < 20; ++i) cost.stepped(1, 28'000);
  for (size_t i = 0; i < 10'000; ++i) {
    const size_t tokens = 180 + i % 77;
    const Nanos more = i % 3 == 0 ? 900'000 : 0;  // the smaller ones may well take longer
    cost.stepped(tokens, time_of(10'000, 18'000, tokens) + more);
  }
  EXPECT_LT(cost.fixed_in_tokens().value_or(100), 2);
}

TEST(StepCost, AStepThatWasInterruptedCountsLittle) {
  StepCost cost;
  for (int i = 0; i < 20; ++i) cost.stepped(1, 28'000);
  for (int i = 0; i < 20; ++i) cost.stepped(200, time_of(10'000, 18'000, 200));
  cost.stepped(1, 20'000'000);
  EXPECT_LT(cost.fixed_in_tokens().value_or(100), 2);
}

TEST(StepCost, FollowsAChange) {
  StepCost cost;
  for (size_t i = 0; i < 1000; ++i) cost.stepped(1 + i % 50, time_of(90'000, 6'000, 1 + i % 50));
  for (size_t i = 0; i < 10'000; ++i) cost.stepped(1 + i % 50, time_of(600'000, 6'000, 1 + i % 50));
  EXPECT_NEAR(cost.fixed_in_tokens().value_or(0), 100, 0.1);
}

// On a GPU a step of 64 tokens may take as long as one of a single token, or, by chance, less.
TEST(StepCost, TokensThatCostNothingMakeTheFixedPartInfinite) {
  StepCost cost;
  for (size_t i = 0; i < 100; ++i) cost.stepped(1 + i % 50, 1'000'000 - static_cast<Nanos>(i % 50));
  ASSERT_TRUE(cost.fixed_in_tokens());
  EXPECT_TRUE(std::isinf(*cost.fixed_in_tokens()));
}

TEST(StepCost, AFixedPartIsNeverNegative) {
  StepCost cost;
  for (size_t i = 1; i < 100; ++i) cost.stepped(i % 50, static_cast<Nanos>((i % 50) * (i % 50)));
  EXPECT_EQ(cost.fixed_in_tokens(), 0);
}

}  // namespace
}  // namespace tuft::engine
