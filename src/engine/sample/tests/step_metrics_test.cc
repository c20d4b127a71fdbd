// Tests the exact metrics of the sampler, with a clock that only the engine's steps advance.
#include "engine/sample/step_metrics.h"

#include <cmath>

#include <gtest/gtest.h>

#include "engine/sample/sampler.h"
#include "engine/tests/fake_engine.h"
#include "telemetry/testing/recorded_metrics.h"

namespace tuft::engine {
namespace {

using telemetry::testing::RecordedMetrics;
using testing::FakeEngine;

constexpr Nanos kStep = 20 * kMillisecond;

class StepMetricsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    engine_.before_step = [this](auto) { return clock_.advance(kStep), Status(); };
    make();
  }
  void make(int batch_tokens = 10, int sequences_max = 64) {
    sampler_ = make_sampler(engine_.model(), engine_.adapters(), engine_.decoding(),
                            {.batch_tokens = batch_tokens,
                             .tokens_max = 40,
                             .sequences_max = sequences_max,
                             .queue_max = 3,
                             .base_model = "m"},
                            {}, clock_);
  }
  SampleRequest request(size_t prompt, int max_tokens, int num_samples = 1) {
    SampleRequest what;
    what.prompt.assign(prompt, 1);
    what.num_samples = num_samples;
    what.params.max_tokens = max_tokens;
    what.params.seed = 3;
    return what;
  }
  Sampler::RequestNumber submit(SampleRequest what) {
    const auto number = sampler_->submit(
        std::move(what), [this](const Result<SampleResult>& result) { result.ok() ? ++finished_ : ++failed_; });
    EXPECT_TRUE(number.ok());
    return number.ok() ? *number : 0;
  }
  void run() {
    for (int i = 0; i < 1000 && !sampler_->idle(); ++i) sampler_->step();
  }

  static RecordedMetrics::LabelList phase(const char* name) { return {{"base_model", "m"}, {"phase", name}}; }

  const RecordedMetrics::LabelList model_ = {{"base_model", "m"}};
  RecordedMetrics metrics_;
  FakeClock clock_;
  FakeEngine engine_{16, 100, clock_};
  std::unique_ptr<Sampler> sampler_;
  int finished_ = 0;
  int failed_ = 0;
};

TEST_F(StepMetricsTest, ZerosBeforeTheFirstRequest) {
  EXPECT_EQ(metrics_.gauge("active_requests_count"), 0);
  EXPECT_EQ(metrics_.gauge("waiting_requests_count"), 0);
  EXPECT_EQ(metrics_.gauge("kv_cache_memory_bytes"), 0);
  EXPECT_EQ(metrics_.gauge("kv_cache_free_memory_bytes"), 1000);
}

TEST_F(StepMetricsTest, OneRequestThenEveryTokenIsCountedOnce) {
  submit(request(4, 3));
  clock_.advance(5 * kMillisecond);
  run();
  // The first step reads the prompt and gives the first token; two more steps give the other tokens.
  EXPECT_EQ(metrics_.counter("prefill_tokens_processed"), 4);
  EXPECT_EQ(metrics_.counter("decode_tokens_processed"), 2);
  EXPECT_EQ(metrics_.count("ttft_milliseconds"), 1U);
  EXPECT_DOUBLE_EQ(metrics_.sum("ttft_milliseconds"), 25);
  EXPECT_EQ(metrics_.count("request_latency_milliseconds"), 1U);
  EXPECT_DOUBLE_EQ(metrics_.sum("request_latency_milliseconds"), 65);
  EXPECT_EQ(metrics_.counter("tuft.scheduler.steps", phase("prefill")), 1);
  EXPECT_EQ(metrics_.counter("tuft.scheduler.steps", phase("decode")), 2);
  EXPECT_EQ(metrics_.counter("tuft.scheduler.steps", phase("mixed")), 0);
  EXPECT_DOUBLE_EQ(metrics_.sum("tuft.scheduler.step.duration", phase("decode")), 0.04);
  EXPECT_DOUBLE_EQ(metrics_.sum("batch_fill_percentage"), 40 + 10 + 10);
  EXPECT_NEAR(metrics_.sum("tuft.scheduler.batch.fill", model_), 0.6, 1e-12);
  EXPECT_DOUBLE_EQ(metrics_.sum("tuft.scheduler.batch.tokens", model_), 6);
  EXPECT_DOUBLE_EQ(metrics_.sum("tuft.scheduler.queue.duration", {{"base_model", "m"}, {"kind", "sample"}}), 0.005);
  EXPECT_EQ(metrics_.count("tuft.sampling.inter_token_latency", model_), 2U);
  EXPECT_DOUBLE_EQ(metrics_.sum("tuft.sampling.inter_token_latency", model_), 0.04);
}

TEST_F(StepMetricsTest, TimesCountFromTheArrivalInTheWorker) {
  auto what = request(2, 1);
  what.arrived = clock_.monotonic();
  clock_.advance(kSecond);
  submit(std::move(what));
  run();
  EXPECT_DOUBLE_EQ(metrics_.sum("ttft_milliseconds"), 1020);
  EXPECT_DOUBLE_EQ(metrics_.sum("request_latency_milliseconds"), 1020);
}

TEST_F(StepMetricsTest, LatencyOfAFailedRequestIsRecorded) {
  int steps = 0;
  engine_.before_step = [&](auto) {
    clock_.advance(kStep);
    return ++steps == 2 ? Status(internal_error("broken")) : Status();
  };
  submit(request(4, 3));
  run();
  EXPECT_EQ(failed_, 1);
  EXPECT_DOUBLE_EQ(metrics_.sum("request_latency_milliseconds"), 40);
  EXPECT_EQ(metrics_.count("ttft_milliseconds"), 1U);
}

TEST_F(StepMetricsTest, LatencyOfACancelledRequestIsRecorded) {
  const auto number = submit(request(4, 30));
  sampler_->step();
  sampler_->cancel(number);
  EXPECT_DOUBLE_EQ(metrics_.sum("request_latency_milliseconds"), 20);
  EXPECT_EQ(metrics_.gauge("active_requests_count"), 0);
  EXPECT_EQ(metrics_.gauge("kv_cache_memory_bytes"), 0);
}

TEST_F(StepMetricsTest, TokensOfOneStepShareOneWeightedRecord) {
  submit(request(2, 4, /*num_samples=*/3));
  run();
  // Three sequences with three intervals each, all of one step.
  EXPECT_EQ(metrics_.count("tuft.sampling.inter_token_latency", model_), 9U);
  EXPECT_NEAR(metrics_.sum("tuft.sampling.inter_token_latency", model_), 9 * 0.02, 1e-12);
  EXPECT_EQ(metrics_.count("ttft_milliseconds"), 1U);
}

TEST_F(StepMetricsTest, GapOfAWaitingSequenceIsItsOwn) {
  submit(request(1, 6));
  sampler_->step();
  sampler_->step();
  submit(request(1, 2));
  run();
  EXPECT_EQ(metrics_.count("tuft.sampling.inter_token_latency", model_), 5U + 1U);
  EXPECT_NEAR(metrics_.sum("tuft.sampling.inter_token_latency", model_), 6 * 0.02, 1e-12);
  EXPECT_EQ(metrics_.counter("tuft.scheduler.steps", phase("mixed")), 1);
}

TEST_F(StepMetricsTest, RatioOfDecodeToPrefillIsSet) {
  submit(request(1, 30));
  sampler_->step();
  submit(request(4, 30));
  sampler_->step();
  EXPECT_EQ(metrics_.gauge("decode_prefill_ratio"), 0.25);
  EXPECT_EQ(metrics_.gauge("active_requests_count"), 2);
  sampler_->step();
  EXPECT_EQ(metrics_.gauge("decode_prefill_ratio"), 0.25) << "of the newest step with a prompt";
  run();
  EXPECT_EQ(metrics_.gauge("active_requests_count"), 0);
  EXPECT_EQ(metrics_.gauge("decode_prefill_ratio"), 0.25) << "a scrape or push of an idle engine has it too";
}

TEST_F(StepMetricsTest, GaugesFallWhenTheQueueIsEmpty) {
  make(10, /*sequences_max=*/1);
  submit(request(4, 5));
  submit(request(4, 5));
  sampler_->step();
  EXPECT_EQ(metrics_.gauge("active_requests_count"), 1);
  EXPECT_EQ(metrics_.gauge("waiting_requests_count"), 1);
  EXPECT_EQ(metrics_.gauge("kv_cache_memory_bytes"), 10);
  EXPECT_EQ(metrics_.gauge("kv_cache_free_memory_bytes"), 990);
  run();
  EXPECT_EQ(metrics_.gauge("active_requests_count"), 0);
  EXPECT_EQ(metrics_.gauge("waiting_requests_count"), 0);
  EXPECT_EQ(metrics_.gauge("kv_cache_memory_bytes"), 0);
  EXPECT_EQ(metrics_.gauge("kv_cache_free_memory_bytes"), 1000);
}

TEST_F(StepMetricsTest, DistinctAdaptersAreCounted) {
  for (const char* name : {"a", "b"}) ASSERT_TRUE(engine_.adapters().create(AdapterId(name), {}).ok());
  for (const char* name : {"a", "b", "a"}) {
    auto what = request(1, 2);
    what.adapter = AdapterId(name);
    submit(std::move(what));
  }
  run();
  EXPECT_EQ(metrics_.count("tuft.scheduler.batch.adapters", model_), 2U);
  EXPECT_DOUBLE_EQ(metrics_.sum("tuft.scheduler.batch.adapters", model_), 4);
  submit(request(1, 2));
  run();
  EXPECT_DOUBLE_EQ(metrics_.sum("tuft.scheduler.batch.adapters", model_), 4) << "the base model is none";
}

TEST_F(StepMetricsTest, TimeBetweenAdjacentStepsIsOverhead) {
  submit(request(1, 4));
  sampler_->step();
  clock_.advance(kMillisecond);
  sampler_->step();
  EXPECT_DOUBLE_EQ(metrics_.sum("tuft.scheduler.step.overhead", model_), 0.001);
  sampler_->pause();
  clock_.advance(kSecond);
  sampler_->step();
  EXPECT_EQ(metrics_.count("tuft.scheduler.step.overhead", model_), 1U);
}

TEST_F(StepMetricsTest, NonFiniteLogitsCountTheirSequenceOnly) {
  engine_.model_function = [](const auto&, const FakeEngine::History& history) {
    std::vector<float> logits(16, 0.0F);
    if (history.size() == 3) logits[2] = NAN;
    return logits;
  };
  submit(request(1, 8));
  submit(request(4, 8));
  run();
  EXPECT_EQ(failed_, 1);
  EXPECT_EQ(finished_, 1);
  EXPECT_EQ(metrics_.counter("tuft.sampling.nonfinite_logits", {{"base_model", "m"}, {"weights", "base"}}), 1);
}

TEST_F(StepMetricsTest, NonFiniteLogitsOfAPromptCountOneSequence) {
  engine_.model_function = [](const auto&, const auto&) { return std::vector<float>(16, NAN); };
  auto what = request(5, 2);
  what.prompt_logprobs = true;
  submit(std::move(what));
  run();
  EXPECT_EQ(metrics_.counter("tuft.sampling.nonfinite_logits", {{"base_model", "m"}, {"weights", "base"}}), 1);
}

TEST_F(StepMetricsTest, RefusedRequestsAreCountedByReason) {
  make(10, /*sequences_max=*/1);
  for (int i = 0; i < 3; ++i) submit(request(1, 2));
  EXPECT_FALSE(sampler_->submit(request(1, 2), [](auto) {}).ok());
  EXPECT_FALSE(sampler_->submit(request(41, 2), [](auto) {}).ok());
  const auto refused = [&](const char* reason) {
    return metrics_.counter("tuft.scheduler.admission.rejections", {{"base_model", "m"}, {"reason", reason}});
  };
  EXPECT_EQ(refused("sampler_queue_full"), 1);
  EXPECT_EQ(metrics_.count("request_latency_milliseconds"), 0U) << "it was never in";
  run();
}

TEST_F(StepMetricsTest, TimesOfWatchedBlocksAreRecorded) {
  submit(request(5, 1));
  run();
  clock_.advance(kSecond);
  submit(request(5, 1));
  run();
  EXPECT_EQ(metrics_.count("tuft.kv_cache.block.reuse_gap", model_), 1U);
  EXPECT_DOUBLE_EQ(metrics_.sum("tuft.kv_cache.block.reuse_gap", model_), 1);
  EXPECT_EQ(metrics_.count("tuft.kv_cache.block.idle", model_), 0U);
}

}  // namespace
}  // namespace tuft::engine
