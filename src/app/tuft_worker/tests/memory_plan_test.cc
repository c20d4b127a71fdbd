#include "app/tuft_worker/memory_plan.h"

#include <gtest/gtest.h>

namespace tuft::app {
namespace {

TEST(MemoryPlan, DefaultIsHalfOfTheShareOfFreeMemory) {
  EXPECT_EQ(plan_kv_cache({.free = 1'000'000, .bytes_per_token = 10, .tokens_max = 100}).value(), 500'000);
  EXPECT_EQ(plan_kv_cache({.free = 1'000'000, .share = 0.25, .bytes_per_token = 10, .tokens_max = 100}).value(),
            125'000);
}

TEST(MemoryPlan, LongestSequenceRaisesTheDefault) {
  EXPECT_EQ(plan_kv_cache({.free = 1'000'000, .bytes_per_token = 10, .tokens_max = 60'000}).value(), 600'640);
  EXPECT_EQ(plan_kv_cache({.free = 1'000'000, .bytes_per_token = 10, .tokens_max = 200'000}).value(), 800'000);
}

TEST(MemoryPlan, LimitThatDoesNotFitIsRefusedWithTheCalculation) {
  const auto too_much = plan_kv_cache({.asked = 2'000'000, .free = 1'000'000, .bytes_per_token = 10});
  ASSERT_FALSE(too_much.ok());
  EXPECT_NE(too_much.error().message.find("2000000"), std::string::npos);
  EXPECT_NE(too_much.error().message.find("1000000"), std::string::npos);
  const auto too_small = plan_kv_cache({.asked = 100, .free = 1'000'000, .bytes_per_token = 10});
  ASSERT_FALSE(too_small.ok());
  EXPECT_NE(too_small.error().message.find("64 tokens x 10 bytes = 640 bytes"), std::string::npos);
  EXPECT_FALSE(plan_kv_cache({.free = 700, .bytes_per_token = 10, .tokens_max = 100}).ok());
}

TEST(MemoryPlan, ConfiguredLimitIsUsed) {
  EXPECT_EQ(plan_kv_cache({.asked = 700'000, .free = 1'000'000, .bytes_per_token = 10}).value(), 700'000);
  EXPECT_EQ(plan_kv_cache({.asked = 700'000, .bytes_per_token = 10}).value(), 700'000);
  EXPECT_EQ(plan_kv_cache({.bytes_per_token = 10, .tokens_max = 100}).value(), 0) << "nobody knows what is free";
}

TEST(MemoryPlan, AdaptersGetHalfOfTheRestAndRoomForTheLargest) {
  EXPECT_EQ(plan_adapters({.free = 1'000, .kv_cache = 500, .training = 60, .sampler = 20}).value(), 250);
  EXPECT_EQ(plan_adapters({.free = 2'000, .share = 0.5, .kv_cache = 500, .training = 60, .sampler = 20}).value(), 250);
  EXPECT_EQ(plan_adapters({.free = 1'000, .kv_cache = 500, .training = 300, .sampler = 100}).value(), 400);
  EXPECT_EQ(plan_adapters({.training = 60, .sampler = 20}).value(), 0) << "nobody knows what is free";
  EXPECT_EQ(plan_adapters({.asked = 90, .free = 1'000, .kv_cache = 500, .training = 60, .sampler = 20}).value(), 90);
}

TEST(MemoryPlan, AdaptersThatDoNotFitAreRefusedWithTheCalculation) {
  const auto too_small = plan_adapters({.asked = 70, .free = 1'000, .training = 60, .sampler = 20});
  ASSERT_FALSE(too_small.ok());
  EXPECT_NE(too_small.error().message.find("takes 60 bytes to be trained, and 20 as a published version: 80 bytes"),
            std::string::npos)
      << too_small.error().message;
  const auto too_much = plan_adapters({.asked = 600, .free = 1'000, .kv_cache = 500, .training = 60, .sampler = 20});
  ASSERT_FALSE(too_much.ok());
  EXPECT_NE(too_much.error().message.find("only 500 bytes"), std::string::npos) << too_much.error().message;
  EXPECT_FALSE(plan_adapters({.free = 1'000, .kv_cache = 950, .training = 60, .sampler = 20}).ok());
}

}  // namespace
}  // namespace tuft::app
