#include "worker/engine_gauges.h"

#include <gtest/gtest.h>

#include "telemetry/testing/recorded_metrics.h"

namespace tuft::worker {
namespace {

using telemetry::testing::RecordedMetrics;

class EngineGaugesTest : public ::testing::Test {
 protected:
  static RecordedMetrics::LabelList with(const char* key, const char* value) {
    return {{"base_model", "m"}, {key, value}};
  }

  const RecordedMetrics::LabelList model_ = {{"base_model", "m"}};
  RecordedMetrics metrics_;
  FakeClock clock_;
  size_t accepted_ = 0;
  EngineGauges gauges_{"m", /*memory_bytes=*/0, clock_, [this] { return accepted_; }};
};

TEST_F(EngineGaugesTest, WhatIsPublishedThenObserved) {
  accepted_ = 7;
  gauges_.publish({.running = 3,
                   .pager = {.training = 2, .samplers = 4},
                   .kv = {.used = 30, .cached = 20, .limit = 120, .block = 10},
                   .adapters = {.weights = 1, .gradients = 2, .optimizer = 3}});
  EXPECT_EQ(metrics_.gauge("tuft.scheduler.requests", with("state", "running")), 3);
  EXPECT_EQ(metrics_.gauge("tuft.scheduler.requests", with("state", "waiting")), 4);
  EXPECT_EQ(metrics_.gauge("tuft.lora.adapters", with("kind", "training")), 2);
  EXPECT_EQ(metrics_.gauge("tuft.lora.adapters", with("kind", "sampler")), 4);
  EXPECT_EQ(metrics_.gauge("tuft.kv_cache.usage", model_), 0.25);
  EXPECT_EQ(metrics_.gauge("tuft.kv_cache.blocks", with("state", "used")), 3);
  EXPECT_EQ(metrics_.gauge("tuft.kv_cache.blocks", with("state", "free")), 7);
  EXPECT_EQ(metrics_.gauge("tuft.kv_cache.blocks", with("state", "cached")), 2);
  EXPECT_EQ(metrics_.gauge("tuft.kv_cache.memory", with("state", "used")), 30);
  EXPECT_EQ(metrics_.gauge("tuft.kv_cache.memory", with("state", "limit")), 120);
  EXPECT_EQ(metrics_.gauge("tuft.lora.memory", with("part", "weights")), 1);
  EXPECT_EQ(metrics_.gauge("tuft.lora.memory", with("part", "gradients")), 2);
  EXPECT_EQ(metrics_.gauge("tuft.lora.memory", with("part", "optimizer")), 3);
}

TEST_F(EngineGaugesTest, NoLimitIsKnownThenNothingSaysHowMuchIsFree) {
  gauges_.publish({.kv = {.used = 30, .block = 10}});
  EXPECT_EQ(metrics_.gauge("tuft.kv_cache.memory", with("state", "used")), 30);
  EXPECT_FALSE(metrics_.gauge("tuft.kv_cache.memory", with("state", "limit")));
  EXPECT_FALSE(metrics_.gauge("tuft.kv_cache.usage", model_));
  EXPECT_FALSE(metrics_.gauge("tuft.kv_cache.blocks", with("state", "free")));
}

TEST_F(EngineGaugesTest, AStepThatHangsThenItsAgeGrowsAndIdleIsNoAge) {
  clock_.advance(kSecond);
  EXPECT_EQ(metrics_.gauge("tuft.scheduler.last_step.age", model_), 0);
  gauges_.work_arrived(clock_.monotonic());
  clock_.advance(3 * kSecond);
  EXPECT_EQ(metrics_.gauge("tuft.scheduler.last_step.age", model_), 3);
  gauges_.progressed(clock_.monotonic());
  clock_.advance(kSecond);
  EXPECT_EQ(metrics_.gauge("tuft.scheduler.last_step.age", model_), 1);
  gauges_.work_ended(clock_.monotonic());
  clock_.advance(kSecond);
  EXPECT_EQ(metrics_.gauge("tuft.scheduler.last_step.age", model_), 0);
}

TEST_F(EngineGaugesTest, BusyIsTheShareOfTheTimeSinceTheLastCollection) {
  clock_.advance(kSecond);
  EXPECT_EQ(metrics_.gauge("tuft.worker.busy", model_), 0);
  gauges_.work_arrived(clock_.monotonic());
  clock_.advance(kSecond);
  gauges_.work_ended(clock_.monotonic());
  clock_.advance(3 * kSecond);
  EXPECT_EQ(metrics_.gauge("tuft.worker.busy", model_), 0.25);
  EXPECT_EQ(metrics_.gauge("tuft.worker.busy", model_), 0.25) << "another reader at once sees the same window";
  gauges_.work_arrived(clock_.monotonic());
  clock_.advance(kSecond);
  EXPECT_EQ(metrics_.gauge("tuft.worker.busy", model_), 1);
}

}  // namespace
}  // namespace tuft::worker
