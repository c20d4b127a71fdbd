#include "engine/back_end/checks.h"

#include <cmath>

#include <gtest/gtest.h>

namespace tuft::engine {
namespace {

TEST(CheckSteps, AnAdapterTwiceThenOnlyTheSecondStepIsRefused) {
  const std::vector<AdapterStep> steps = {{AdapterId("a"), {}}, {AdapterId("b"), {}}, {AdapterId("a"), {}}};
  const std::vector<Status> statuses = check_steps(steps);
  EXPECT_TRUE(statuses[0].ok() && statuses[1].ok());
  EXPECT_EQ(statuses[2].error().reason, "step_twice");
}

TEST(CheckSteps, ParamsOutOfRangeThenTheInvariantIsBroken) {
  for (const OptimParams bad :
       {OptimParams(DimuonParams{.beta1 = 1}), OptimParams(DimuonParams{.learning_rate = NAN}),
        OptimParams(AdamParams{.beta1 = 1}), OptimParams(AdamParams{.beta2 = -0.1}), OptimParams(AdamParams{.eps = -1}),
        OptimParams(AdamParams{.learning_rate = NAN}), OptimParams(AdamParams{.weight_decay = INFINITY})}) {
    const AdapterStep step{AdapterId("a"), bad};
    EXPECT_DEATH((void)check_steps({&step, 1}), "parameters of steps are checked");
  }
}

}  // namespace
}  // namespace tuft::engine
