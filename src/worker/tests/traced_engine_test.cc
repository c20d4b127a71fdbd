// The arithmetic and traffic of passes and steps, counted by hand, and the times of a pass.
#include "worker/traced_engine.h"

#include <gtest/gtest.h>

#include "engine/tests/fake_engine.h"
#include "worker/pass_recorder.h"

namespace tuft::worker {
namespace {

using engine::AdapterId;
using engine::testing::FakeEngine;

// The fake engine's model: a block of 4 x (4 x 4) + 3 x (4 x 8) = 160 weights, a head of 64, attention 16 a pair of
// tokens; 10 bytes of cache hold 4 positions, and an adapter that is sampled from takes 20.
constexpr double kBlock = 160;
constexpr double kHead = 64;
constexpr double kPair = 16;
constexpr double kKv = 2.5;
// A and B of rank 2 beside the four matrices of attention.
constexpr double kAdapter = 4 * 2 * (4 + 4);

class TracedEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    engine::AdapterState state;
    state.spec.rank = 2;
    state.spec.train_mlp = state.spec.train_unembed = false;
    ASSERT_TRUE(fake_.adapters().create(AdapterId("a"), state).ok());
    ASSERT_TRUE(fake_.adapters().clone(AdapterId("a"), AdapterId("b")).ok());
  }
  static engine::Pack pack() {
    engine::Pack pack;
    pack.tokens = {1, 2, 3, 4, 5};
    pack.segments = {{AdapterId("a"), 0, 3}, {AdapterId("b"), 3, 5}};
    pack.targets = {{1, 3}, {1, 4}, {2, 5}, {4, 6}};
    return pack;
  }
  engine::SequenceId open(const std::optional<AdapterId>& adapter) { return decoding_.open(adapter, 0).value(); }
  Status feed(const std::vector<std::pair<engine::SequenceId, std::vector<int32_t>>>& what, int logits = 1) {
    std::vector<engine::Feed> feeds;
    for (const auto& [sequence, tokens] : what) feeds.push_back({sequence, tokens, logits});
    return decoding_.step(feeds, [](auto) {});
  }
  const StepTotals& steps() const { return decoding_.totals(); }

  FakeClock clock_;
  FakeEngine fake_{16};
  TracedTraining training_{fake_, clock_};
  TracedDecoding decoding_{fake_, clock_};
};

TEST_F(TracedEngineTest, APassThenItsArithmetic) {
  std::vector<float> logprobs(4);
  ASSERT_TRUE(training_.forward(pack(), true, logprobs).ok());
  const double forward = 2 * (kBlock + kAdapter) * 5 + kPair * (6 + 3) + 3 * 2 * kHead;
  EXPECT_DOUBLE_EQ(training_.totals().forward_flops, forward) << "two targets of one token need one row of logits";
  // Only the third target's loss has a gradient.
  ASSERT_TRUE(training_.backward(std::vector<float>{0, 0, 1, 0}).ok());
  EXPECT_DOUBLE_EQ(training_.totals().backward_flops,
                   (2 * kBlock + 4 * kAdapter) * 5 + 2 * kPair * (6 + 3) + 2 * kHead);
  ASSERT_TRUE(training_.forward(pack(), false, logprobs).ok());
  EXPECT_DOUBLE_EQ(training_.totals().forward_flops, 2 * forward);
}

TEST_F(TracedEngineTest, ALossWithoutAGradientThenNoWayBack) {
  std::vector<float> logprobs(4);
  ASSERT_TRUE(training_.forward(pack(), true, logprobs).ok());
  ASSERT_TRUE(training_.backward(std::vector<float>(4)).ok());
  EXPECT_EQ(training_.totals().backward_flops, 0);
}

class RecordedMember final : public PassMember {
 public:
  telemetry::SpanContext span_context() const override { return {}; }
  std::vector<telemetry::Attribute> pass_keys() const override { return {}; }
  void passed(const PassPart& part) override { part_ = part; }
  const PassPart& part() const { return part_; }

 private:
  PassPart part_;
};

// What follows the forward pass is the loss, whether or not a backward pass ends it.
TEST_F(TracedEngineTest, APassThenTheTimesOfItsParts) {
  fake_.before_forward = [this](const auto&) { return clock_.advance(2 * kSecond), Status(); };
  const OperationMetrics metrics("m");
  PassRecorder recorder(training_, clock_, metrics, 64);
  RecordedMember member;
  recorder.add(1, member);
  for (const bool backward : {false, true, false}) {
    engine::TrainPass pass = {.number = 1, .backward = backward, .tokens = 5, .adapters = 2, .shares = {}};
    pass.shares.push_back({1, 2, 5});
    recorder.pass_begins(pass);
    clock_.advance(kSecond);
    std::vector<float> logprobs(4);
    ASSERT_TRUE(training_.forward(pack(), backward, logprobs).ok());
    clock_.advance(3 * kSecond);
    if (backward) {
      ASSERT_TRUE(training_.backward(logprobs).ok());
      clock_.advance(4 * kSecond);
    }
    recorder.pass_ended(pass, {});
    EXPECT_EQ(member.part().forward, 2 * kSecond);
    EXPECT_EQ(member.part().loss, 3 * kSecond);
    EXPECT_EQ(member.part().pack, (backward ? 5 : 1) * kSecond);
  }
}

TEST_F(TracedEngineTest, APassThatFailsThenNothingWasDone) {
  fake_.before_forward = [](const auto&) { return Status(internal_error("broken")); };
  std::vector<float> logprobs(4);
  ASSERT_FALSE(training_.forward(pack(), true, logprobs).ok());
  EXPECT_EQ(training_.totals().forward_flops, 0);
}

TEST_F(TracedEngineTest, APromptAndATokenThenPrefillAndDecode) {
  fake_.before_step = [this](auto) { return clock_.advance(kSecond), Status(); };
  const auto sequence = open(std::nullopt);
  ASSERT_TRUE(feed({{sequence, {1, 2, 3}}}).ok());
  EXPECT_DOUBLE_EQ(steps().prefill_flops, 2 * kBlock * 3 + kPair * 6 + 2 * kHead);
  EXPECT_DOUBLE_EQ(steps().bytes_read, 4 * (kBlock + kHead) + 3 * kKv);
  EXPECT_DOUBLE_EQ(steps().bytes_written, 3 * kKv);
  EXPECT_EQ(steps().decode_flops, 0);
  ASSERT_TRUE(feed({{sequence, {4}}}).ok());
  EXPECT_DOUBLE_EQ(steps().decode_flops, 2 * kBlock + kPair * 4 + 2 * kHead);
  EXPECT_DOUBLE_EQ(steps().bytes_read, 2 * 4 * (kBlock + kHead) + 3 * kKv + 4 * kKv);
  EXPECT_EQ(steps().time, 2 * kSecond);
}

TEST_F(TracedEngineTest, SequencesOfOneAdapterThenItIsReadOnceAStep) {
  const auto first = open(AdapterId("a"));
  const auto second = open(AdapterId("a"));
  ASSERT_TRUE(feed({{first, {1, 2}}, {second, {1}}}, 0).ok());
  EXPECT_DOUBLE_EQ(steps().bytes_read, 4 * kBlock + 20 + 3 * kKv) << "nobody wanted logits";
  EXPECT_DOUBLE_EQ(steps().prefill_flops, 2 * (kBlock + kAdapter) * 2 + kPair * 3);
  const auto third = open(AdapterId("b"));
  ASSERT_TRUE(feed({{first, {1}}, {third, {1}}}, 0).ok());
  EXPECT_DOUBLE_EQ(steps().bytes_read, 2 * 4 * kBlock + 3 * 20 + 3 * kKv + (3 + 1) * kKv);
}

TEST_F(TracedEngineTest, WhatWasTakenOverOrForkedThenAttendedToAndNotComputed) {
  const auto first = open(std::nullopt);
  ASSERT_TRUE(feed({{first, {1, 2, 3, 4, 5}}}).ok());
  const auto second = open(std::nullopt);
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6};
  ASSERT_EQ(decoding_.adopt_prefix(second, prompt), 4);
  const double before = steps().prefill_flops;
  ASSERT_TRUE(feed({{second, {5, 6}}}).ok());
  EXPECT_DOUBLE_EQ(steps().prefill_flops - before, 2 * kBlock * 2 + kPair * (5 + 6) + 2 * kHead);
  const auto fork = decoding_.fork(second).value();
  ASSERT_TRUE(feed({{fork, {7}}}).ok());
  EXPECT_DOUBLE_EQ(steps().decode_flops, 2 * kBlock + kPair * 7 + 2 * kHead);
}

TEST_F(TracedEngineTest, AnAdapterThatComesBackThenCountedAgain) {
  const auto state = fake_.adapters().take(AdapterId("a"));
  ASSERT_TRUE(state.ok());
  ASSERT_TRUE(fake_.adapters().create(AdapterId("a"), *state).ok());
  const auto sequence = open(AdapterId("a"));
  ASSERT_TRUE(feed({{sequence, {1}}}, 0).ok());
  EXPECT_DOUBLE_EQ(steps().decode_flops, 2 * (kBlock + kAdapter) + kPair);
}

TEST_F(TracedEngineTest, AStepThatFailsThenNothingWasDone) {
  fake_.before_step = [](auto) { return Status(internal_error("broken")); };
  const auto sequence = open(std::nullopt);
  EXPECT_FALSE(feed({{sequence, {1}}}).ok());
  EXPECT_EQ(steps().decode_flops, 0);
  EXPECT_EQ(steps().bytes_read, 0);
}

}  // namespace
}  // namespace tuft::worker
