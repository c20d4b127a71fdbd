// What engine.h promises of open sequences and their KV cache, for every back end; and the sampler over it.
#include <algorithm>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "support.h"

namespace tuft::parity {
namespace {

using engine::AdapterId;
using engine::SequenceId;

class KvContract : public ParityTest {
 protected:
  void SetUp() override {
    ParityTest::SetUp();
    if (IsSkipped()) return;
    positions_ = engine_->decoding().kv_usage().positions;
    block_ = engine_->decoding().kv_usage().block;
    for (int i = 0; i < 6 * positions_; ++i) tokens_.push_back((i * 7 + i / 5) % reference_->model().vocab_size);
  }
  void limit(int64_t blocks) { engine_ = make_engine({.kv_bytes_max = blocks * block_}); }

  SequenceId open(const std::optional<AdapterId>& adapter = std::nullopt, uint64_t scope = 0) {
    return engine_->decoding().open(adapter, scope).value();
  }
  std::span<const int32_t> tokens(size_t first, size_t count) const { return std::span(tokens_).subspan(first, count); }
  // All logits of the tokens, fed `piece` at a time.
  std::vector<float> feed(SequenceId sequence, std::span<const int32_t> tokens, size_t piece = 1000) {
    std::vector<float> all;
    while (!tokens.empty()) {
      const auto part = tokens.first(std::min(piece, tokens.size()));
      tokens = tokens.subspan(part.size());
      const engine::Feed one{sequence, part, static_cast<int>(part.size())};
      const Status status =
          engine_->decoding().step({&one, 1}, engine::for_each_row([&](size_t, int, std::span<const float> logits) {
                                     all.insert(all.end(), logits.begin(), logits.end());
                                   }));
      EXPECT_TRUE(status.ok()) << status.error().message;
    }
    return all;
  }
  // Those that a sequence of its own gives for the tokens from `first` on.
  std::vector<float> alone(const std::optional<AdapterId>& adapter, std::span<const int32_t> tokens, size_t first) {
    const SequenceId sequence = open(adapter, ++scope_);
    feed(sequence, tokens.first(first));
    std::vector<float> logits = feed(sequence, tokens.subspan(first));
    engine_->decoding().close(sequence);
    return logits;
  }
  // One step of the adapter's optimizer.
  void train() {
    engine::Pack pack;
    pack.tokens = {1, 2, 3};
    pack.segments = {{adapter_, 0, 3}};
    pack.targets = {{0, 2}, {1, 3}};
    std::vector<float> logprobs(2);
    ASSERT_TRUE(engine_->training().forward(pack, true, logprobs).ok());
    ASSERT_TRUE(engine_->training().backward(std::vector<float>{-1.0F, -1.0F}).ok());
    ASSERT_TRUE(engine_->training().optim_step(adapter_, {}).ok());
  }
  int64_t used() const { return engine_->decoding().kv_usage().used / block_; }
  int64_t cached() const { return engine_->decoding().kv_usage().cached / block_; }

  static constexpr double kError = 5e-5;  // of logits
  int positions_ = 0;
  int64_t block_ = 0;
  std::vector<int32_t> tokens_;
  uint64_t scope_ = 100;  // that nobody shares
};

TEST_P(KvContract, AForkAndItsSourceGoOnAsIfAlone) {
  for (const int shared : {1, positions_ - 3, positions_, positions_ + 9}) {
    const auto past = static_cast<size_t>(shared);
    const SequenceId left = open(adapter_);
    feed(left, tokens(0, past));
    const SequenceId right = engine_->decoding().fork(left).value();
    for (const auto& [sequence, from, piece] :
         {std::tuple{left, size_t{3}, size_t{3}}, {right, size_t{11}, size_t{1}}}) {
      std::vector<int32_t> whole(tokens_.begin(), tokens_.begin() + shared);
      const auto future = tokens(from, 20);
      whole.insert(whole.end(), future.begin(), future.end());
      EXPECT_TRUE(agree(back_end(), feed(sequence, future, piece), alone(adapter_, whole, past), kError)) << shared;
    }
    engine_->decoding().close(left);
    engine_->decoding().close(right);
  }
  EXPECT_EQ(used(), 0);
  EXPECT_EQ(cached(), 0) << "without a limit nothing is kept";
}

TEST_P(KvContract, AFullCacheRefusesAStepAndTheSequenceGoesOnLater) {
  limit(3);
  const auto block = static_cast<size_t>(positions_);
  const SequenceId first = open();
  const SequenceId second = open();
  feed(first, tokens(0, block + 1));
  feed(second, tokens(1, block - 4));
  EXPECT_EQ(used(), 3);
  EXPECT_EQ(engine_->decoding().kv_usage().empty, block_ * (positions_ - 1 + 4) / positions_);
  const engine::Feed one{first, tokens(block + 1, block), 1};
  const auto refused =
      engine_->decoding().step({&one, 1}, engine::for_each_row([](size_t, int, std::span<const float>) { FAIL(); }));
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(refused.error().reason, "kv_cache_full");
  EXPECT_EQ(engine_->decoding().fork(first).error().reason, "kv_cache_full");
  engine_->decoding().close(second);
  const auto later = feed(first, tokens(block + 1, block));
  engine_->decoding().close(first);
  EXPECT_TRUE(agree(back_end(), later, alone(std::nullopt, tokens(0, 2 * block + 1), block + 1), kError));
  EXPECT_EQ(used(), 0);
  EXPECT_EQ(engine_->decoding().kv_usage().empty, 0);
}

TEST_P(KvContract, APrefixThatWasComputedBeforeGivesTheSameLogits) {
  limit(8);
  const auto block = static_cast<size_t>(positions_);
  for (const std::optional<AdapterId>& adapter : {std::optional<AdapterId>(), std::optional<AdapterId>(adapter_)}) {
    const auto prompt = tokens(0, 2 * block + 20);
    const auto fresh = alone(adapter, prompt, 2 * block);
    const SequenceId writer = open(adapter, 1);
    feed(writer, prompt, 7);
    engine_->decoding().close(writer);
    const SequenceId reader = open(adapter, 1);
    EXPECT_EQ(engine_->decoding().adopt_prefix(reader, prompt), 2 * positions_);
    EXPECT_TRUE(agree(back_end(), feed(reader, prompt.subspan(2 * block)), fresh, kError));
    engine_->decoding().close(reader);
  }
}

TEST_P(KvContract, OnlyTheSameVersionAndScopeShare) {
  limit(16);
  const auto prompt = tokens(0, static_cast<size_t>(positions_) + 6);
  const auto hits = [&](const std::optional<AdapterId>& adapter, uint64_t scope) {
    const SequenceId sequence = open(adapter, scope);
    const int hit = engine_->decoding().adopt_prefix(sequence, prompt);
    engine_->decoding().close(sequence);
    return hit;
  };
  const auto fill = [&] {
    const SequenceId sequence = open(adapter_, 1);
    feed(sequence, prompt);
    engine_->decoding().close(sequence);
  };
  fill();
  EXPECT_EQ(hits(adapter_, 1), positions_);
  EXPECT_EQ(hits(adapter_, 2), 0);
  EXPECT_EQ(hits(std::nullopt, 1), 0);
  train();
  EXPECT_EQ(hits(adapter_, 1), 0) << "its matrices changed";
  EXPECT_EQ(cached(), 0);
  fill();
  ASSERT_TRUE(engine_->adapters().import_state(adapter_, reference_->adapter()).ok());
  EXPECT_EQ(hits(adapter_, 1), 0);
  fill();
  const auto taken = engine_->adapters().take(adapter_);
  ASSERT_TRUE(taken.ok());
  ASSERT_TRUE(engine_->adapters().create(adapter_, *taken).ok());
  EXPECT_EQ(hits(adapter_, 1), 0) << "another adapter of the same name";
}

TEST_P(KvContract, LogitsComeInOrderFromFeedsOfSeveralAdapters) {
  const AdapterId copy("copy");
  ASSERT_TRUE(engine_->adapters().clone(adapter_, copy).ok());
  const std::vector<std::optional<AdapterId>> adapters = {adapter_, std::nullopt, copy, adapter_, copy};
  std::vector<SequenceId> sequences;
  std::vector<std::vector<float>> got(adapters.size());
  for (const auto& adapter : adapters) sequences.push_back(open(adapter));
  for (int round = 0; round < 3; ++round) {
    std::vector<engine::Feed> feeds;
    for (size_t i = 0; i < adapters.size(); ++i) {
      const size_t at = round == 0 ? 0 : 9 + i + static_cast<size_t>(round);
      feeds.push_back({sequences[i], tokens(at, round == 0 ? 10 + i : 1), i == 1 && round == 0 ? 0 : 1});
    }
    std::vector<size_t> order;
    ASSERT_TRUE(engine_->decoding()
                    .step(feeds, engine::for_each_row([&](size_t feed, int row, std::span<const float> logits) {
                            order.push_back(feed);
                            EXPECT_EQ(row, static_cast<int>(feeds[feed].tokens.size()) - 1);
                            got[feed].assign(logits.begin(), logits.end());
                          }))
                    .ok());
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
    EXPECT_EQ(order.size(), round == 0 ? 4U : 5U);
  }
  for (size_t i = 0; i < adapters.size(); ++i) {
    EXPECT_TRUE(agree(back_end(), got[i], alone(adapters[i], tokens(0, 12 + i), 11 + i), kError)) << "feed " << i;
  }
  EXPECT_EQ(engine_->decoding().step(std::vector<engine::Feed>{{9999, tokens(0, 1), 1}}, {}).error().code,
            ErrorCode::kNotFound);
  const std::vector<engine::Feed> twice = {{sequences[0], tokens(0, 1), 1}, {sequences[0], tokens(0, 1), 1}};
  EXPECT_EQ(engine_->decoding().step(twice, {}).error().code, ErrorCode::kInvalidArgument);
}

// The sampler in a cache so small that sequences give way and are computed again: the tokens of an endless one.
TEST_P(KvContract, ASmallCacheChangesNoTokenOfGreedySamples) {
  std::vector<engine::SampleRequest> requests;
  for (size_t i = 0; i < 4; ++i) {
    engine::SampleRequest request;
    if (i % 2 == 0) request.adapter = adapter_;
    request.prompt.assign(tokens_.begin() + static_cast<ptrdiff_t>(i),
                          tokens_.begin() + 30 + static_cast<ptrdiff_t>(i));
    request.params.temperature = 0.0F;
    request.params.max_tokens = positions_ + 10;
    requests.push_back(std::move(request));
  }
  const auto expected = sample(*engine_, requests);
  limit(4);
  const auto got = sample(*engine_, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(got[i].sequences[0].tokens, expected[i].sequences[0].tokens) << i;
    EXPECT_TRUE(agree(back_end(), got[i].sequences[0].logprobs, expected[i].sequences[0].logprobs)) << i;
  }
  EXPECT_EQ(used(), 0);
}

INSTANTIATE_TEST_SUITE_P(All, KvContract,
                         testing::Combine(testing::ValuesIn(back_ends()),
                                          testing::Values("qwen3_untied", "llama_linear_bias")),
                         parity_name);

}  // namespace
}  // namespace tuft::parity
