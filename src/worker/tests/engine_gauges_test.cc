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
  gauges_.update({.running = 3,
                  .samples = {.pending = 5, .prefilling = 1, .decoding = 2},
                  .pager = {.training = 2,
                            .samplers = 4,
                            .paged_training = 5,
                            .paged_samplers = 6,
                            .waiting_training = 1,
                            .waiting_samplers = 3,
                            .leaving = 70},
                  .kv = {.used = 30, .cached = 20, .limit = 120, .block = 10},
                  .adapters = {.weights = 1, .gradients = 2, .optimizer = 3}});
  EXPECT_EQ(metrics_.gauge("tuft.scheduler.requests", with("state", "running")), 3);
  EXPECT_EQ(metrics_.gauge("tuft.scheduler.requests", with("state", "waiting")), 4);
  EXPECT_EQ(metrics_.gauge("tuft.scheduler.samples", with("state", "pending")), 5);
  EXPECT_EQ(metrics_.gauge("tuft.scheduler.samples", with("state", "prefilling")), 1);
  EXPECT_EQ(metrics_.gauge("tuft.scheduler.samples", with("state", "decoding")), 2);
  EXPECT_EQ(metrics_.gauge("tuft.lora.adapters", with("kind", "training")), 2);
  EXPECT_EQ(metrics_.gauge("tuft.lora.adapters", with("kind", "sampler")), 4);
  EXPECT_EQ(metrics_.gauge("tuft.lora.adapters.paged", with("kind", "training")), 5);
  EXPECT_EQ(metrics_.gauge("tuft.lora.adapters.paged", with("kind", "sampler")), 6);
  EXPECT_EQ(metrics_.gauge("tuft.lora.adapters.waiting", with("kind", "training")), 1);
  EXPECT_EQ(metrics_.gauge("tuft.lora.adapters.waiting", with("kind", "sampler")), 3);
  EXPECT_EQ(metrics_.gauge("tuft.lora.page.pending", model_), 70);
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
  gauges_.update({.kv = {.used = 30, .block = 10}});
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

TEST_F(EngineGaugesTest, ArithmeticThenTotalsAndTheShareOfThePeakWhileItRan) {
  EXPECT_FALSE(metrics_.gauge("tuft.device.peak_flops", model_));
  clock_.advance(10 * kSecond);
  EngineGauges::State state = {
      .passes = {.forward = kSecond, .backward = kSecond, .forward_flops = 40, .backward_flops = 60},
      .steps = {.time = 4 * kSecond, .prefill_flops = 10, .decode_flops = 30, .bytes_read = 7, .bytes_written = 5},
      .peak_flops = 100};
  gauges_.update(state);
  EXPECT_EQ(metrics_.gauge("tuft.device.peak_flops", model_), 100);
  EXPECT_EQ(metrics_.gauge("tuft.training.model.flops", with("pass", "forward")), 40);
  EXPECT_EQ(metrics_.gauge("tuft.training.model.flops", with("pass", "backward")), 60);
  EXPECT_EQ(metrics_.gauge("tuft.sampling.model.flops", with("kind", "prefill")), 10);
  EXPECT_EQ(metrics_.gauge("tuft.sampling.model.flops", with("kind", "decode")), 30);
  EXPECT_EQ(metrics_.gauge("tuft.sampling.model.bytes", with("direction", "read")), 7);
  EXPECT_EQ(metrics_.gauge("tuft.sampling.model.bytes", with("direction", "write")), 5);
  EXPECT_EQ(metrics_.gauge("tuft.training.mfu", model_), 0.5);
  EXPECT_EQ(metrics_.gauge("tuft.sampling.mfu", model_), 0.1);
  clock_.advance(10 * kSecond);
  state.passes.forward += kSecond;
  state.passes.forward_flops += 25;
  gauges_.update(state);
  EXPECT_EQ(metrics_.gauge("tuft.training.mfu", model_), 0.25) << "since the last collection";
  EXPECT_EQ(metrics_.gauge("tuft.training.mfu", model_), 0.25) << "another reader at once sees the same";
  EXPECT_FALSE(metrics_.gauge("tuft.sampling.mfu", model_)) << "nothing was sampled";
}

TEST_F(EngineGaugesTest, NoPeakIsKnownThenNoUtilization) {
  clock_.advance(10 * kSecond);
  gauges_.update({.passes = {.forward = kSecond, .forward_flops = 40}});
  EXPECT_EQ(metrics_.gauge("tuft.training.model.flops", with("pass", "forward")), 40);
  EXPECT_FALSE(metrics_.gauge("tuft.training.mfu", model_));
}

TEST_F(EngineGaugesTest, ADeviceWithItsOwnTimeThenThatCounts) {
  EXPECT_FALSE(metrics_.gauge("tuft.device.time", with("work", "forward")));
  clock_.advance(10 * kSecond);
  gauges_.update({.passes = {.forward = kMillisecond, .backward = kMillisecond, .forward_flops = 100},
                  .device = {.forward = 2 * kSecond, .backward = 3 * kSecond, .optim_step = kSecond, .step = 0},
                  .peak_flops = 100});
  EXPECT_EQ(metrics_.gauge("tuft.device.time", with("work", "forward")), 2);
  EXPECT_EQ(metrics_.gauge("tuft.device.time", with("work", "backward")), 3);
  EXPECT_EQ(metrics_.gauge("tuft.device.time", with("work", "optim")), 1);
  EXPECT_EQ(metrics_.gauge("tuft.device.time", with("work", "step")), 0);
  EXPECT_EQ(metrics_.gauge("tuft.training.mfu", model_), 0.2);
}

TEST_F(EngineGaugesTest, WhoWaitsThenObserved) {
  gauges_.update({.kv = {.used = 40, .block = 10, .empty = 10}, .waiting_for_adapter = 3, .deficit_max = 17});
  EXPECT_EQ(metrics_.gauge("tuft.lora.requests.waiting_for_adapter", model_), 3);
  EXPECT_EQ(metrics_.gauge("tuft.scheduler.fairness.deficit.max", model_), 17);
  EXPECT_EQ(metrics_.gauge("tuft.kv_cache.fragmentation", model_), 0.25);
}

}  // namespace
}  // namespace tuft::worker
