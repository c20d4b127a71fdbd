#include "app/tuft_worker/memory_plan.h"

#include <gtest/gtest.h>

namespace tuft::app {
namespace {

TEST(MemoryPlan, NothingAskedThenHalfOfItsShareOfWhatIsFree) {
  EXPECT_EQ(plan_kv_cache({.free = 1'000'000, .bytes_per_token = 10, .tokens_max = 100}).value(), 500'000);
  EXPECT_EQ(plan_kv_cache({.free = 1'000'000, .share = 0.25, .bytes_per_token = 10, .tokens_max = 100}).value(),
            125'000);
}

TEST(MemoryPlan, TheLongestSequenceNeedsMoreThenMoreWhereThereIsMore) {
  EXPECT_EQ(plan_kv_cache({.free = 1'000'000, .bytes_per_token = 10, .tokens_max = 60'000}).value(), 600'640);
  EXPECT_EQ(plan_kv_cache({.free = 1'000'000, .bytes_per_token = 10, .tokens_max = 200'000}).value(), 800'000);
}

TEST(MemoryPlan, WhatDoesNotFitIsRefusedWithTheSum) {
  const auto too_much = plan_kv_cache({.asked = 2'000'000, .free = 1'000'000, .bytes_per_token = 10});
  ASSERT_FALSE(too_much.ok());
  EXPECT_NE(too_much.error().message.find("2000000"), std::string::npos);
  EXPECT_NE(too_much.error().message.find("1000000"), std::string::npos);
  const auto too_small = plan_kv_cache({.asked = 100, .free = 1'000'000, .bytes_per_token = 10});
  ASSERT_FALSE(too_small.ok());
  EXPECT_NE(too_small.error().message.find("64 tokens x 10 bytes = 640 bytes"), std::string::npos);
  EXPECT_FALSE(plan_kv_cache({.free = 700, .bytes_per_token = 10, .tokens_max = 100}).ok());
}

TEST(MemoryPlan, WhatIsAskedIsTaken) {
  EXPECT_EQ(plan_kv_cache({.asked = 700'000, .free = 1'000'000, .bytes_per_token = 10}).value(), 700'000);
  EXPECT_EQ(plan_kv_cache({.asked = 700'000, .bytes_per_token = 10}).value(), 700'000);
  EXPECT_EQ(plan_kv_cache({.bytes_per_token = 10, .tokens_max = 100}).value(), 0) << "nobody knows what is free";
}

}  // namespace
}  // namespace tuft::app
