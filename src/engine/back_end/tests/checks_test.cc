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

TEST(CheckSteps, AdamParamsOutOfRangeThenTheInvariantIsBroken) {
  for (const AdamParams& bad : {AdamParams{.beta1 = 1}, AdamParams{.beta2 = -0.1}, AdamParams{.eps = -1},
                                AdamParams{.learning_rate = NAN}, AdamParams{.weight_decay = INFINITY}}) {
    const AdapterStep step{AdapterId("a"), bad};
    EXPECT_DEATH((void)check_steps({&step, 1}), "AdamParams are checked");
  }
}

}  // namespace
}  // namespace tuft::engine
