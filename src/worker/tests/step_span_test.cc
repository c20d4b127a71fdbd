// The span engine.step, as a collector receives it.
#include <gtest/gtest.h>

#include "engine/sample/step_trace.h"
#include "engine/tests/fake_engine.h"
#include "telemetry/tests/collector_fixture.h"

namespace tuft::worker {
namespace {

using engine::testing::FakeEngine;
using telemetry::testing::ReceivedSpan;
using telemetry::testing::text_of;

class StepSpanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    engine_.before_step = [this](auto) { return clock_.advance(duration_), outcome_; };
    sampler_ = engine::make_sampler(engine_.model(), engine_.adapters(), engine_.decoding(),
                                    {.batch_tokens = 64, .tokens_max = 1000, .base_model = "m"}, {}, clock_);
  }
  // `number` is that of its span.
  void submit(uint64_t number, size_t prompt, int max_tokens, int num_samples = 1) {
    engine::SampleRequest what;
    what.prompt.assign(prompt, 1);
    what.num_samples = num_samples;
    what.params.max_tokens = max_tokens;
    what.params.seed = 3;
    what.trace = trace(number);
    ASSERT_TRUE(sampler_->submit(std::move(what), [](const auto&) {}).ok());
  }
  static telemetry::SpanContext trace(uint64_t number) {
    return {.trace_id_high = 7, .trace_id_low = number, .span_id = number + 100, .flags = 1};
  }
  void run() {
    for (int i = 0; i < 5000 && !sampler_->idle(); ++i) sampler_->step();
  }
  std::vector<ReceivedSpan> spans() {
    EXPECT_TRUE(collector_.flush());
    std::vector<ReceivedSpan> found;
    for (auto& span : collector_.receiver.spans()) {
      if (span.name == "engine.step") found.push_back(span);
    }
    return found;
  }

  telemetry::WithCollector collector_;
  FakeClock clock_;
  Nanos duration_ = kMillisecond;
  Status outcome_;
  FakeEngine engine_{16, 1000};
  std::unique_ptr<engine::Sampler> sampler_;
};

TEST_F(StepSpanTest, ASampledStepLinksToItsRequests) {
  submit(1, 3, 300, /*num_samples=*/2);
  submit(2, 5, 300);
  run();
  const auto found = spans();
  ASSERT_EQ(found.size(), 3U) << "of 300 steps";
  const ReceivedSpan& first = found[0];
  EXPECT_EQ(first.parent_span_id, "");
  EXPECT_NE(first.trace_id, trace(1).trace_id_hex()) << "a trace of its own";
  ASSERT_EQ(first.links.size(), 2U);
  for (uint64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(first.links[i].trace_id, trace(i + 1).trace_id_hex());
    EXPECT_EQ(first.links[i].span_id, trace(i + 1).span_id_hex());
  }
  EXPECT_EQ(text_of(first.attributes, "tuft.base_model"), "m");
  EXPECT_EQ(text_of(first.attributes, "tuft.phase"), "prefill");
  EXPECT_EQ(text_of(first.attributes, "tuft.requests"), "2");
  EXPECT_EQ(text_of(first.attributes, "tuft.prefill_tokens"), "8");
  EXPECT_EQ(text_of(first.attributes, "tuft.slow"), "false");
  EXPECT_EQ(first.end - first.start, static_cast<uint64_t>(kMillisecond));
  EXPECT_EQ(text_of(found[1].attributes, "tuft.phase"), "decode");
  EXPECT_EQ(text_of(found[1].attributes, "tuft.requests"), "2");
  EXPECT_EQ(text_of(found[1].attributes, "tuft.sequences"), "3");
  EXPECT_EQ(text_of(found[1].attributes, "tuft.decode_tokens"), "3");
}

TEST_F(StepSpanTest, WithMoreRequestsThanLinksTheOldestAreLinkedAndAllAreCounted) {
  for (uint64_t i = 1; i <= 40; ++i) submit(i, 1, 2);
  run();
  const auto found = spans();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].links.size(), 32U);
  EXPECT_EQ(found[0].links[31].trace_id, trace(32).trace_id_hex());
  EXPECT_EQ(text_of(found[0].attributes, "tuft.requests"), "40");
}

TEST_F(StepSpanTest, AStepThatTakesMuchLongerThanOthersAlwaysHasASpan) {
  submit(1, 1, 60);
  for (int i = 0; i < 40; ++i) sampler_->step();
  duration_ = 10 * kMillisecond;
  sampler_->step();
  sampler_->step();  // too soon after the last one
  duration_ = kMillisecond;
  run();
  const auto found = spans();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(text_of(found[1].attributes, "tuft.slow"), "true");
  EXPECT_EQ(found[1].end - found[1].start, static_cast<uint64_t>(10 * kMillisecond));
}

TEST_F(StepSpanTest, TheSpanOfAFailedStepSaysWhy) {
  outcome_ = internal_error("broken");
  submit(1, 1, 2);
  run();
  const auto found = spans();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found[0].error);
  EXPECT_EQ(found[0].status_message, "broken");
}

}  // namespace
}  // namespace tuft::worker
