// Tests the engine's KV cache: which sequences share blocks, what it counts, and that it changes no bit of a result.
#include <tuple>

#include <gtest/gtest.h>

#include "engine/native/tests/reference_model.h"

namespace tuft::engine::native::test {
namespace {

constexpr int kBlock = 64;
using Logits = std::vector<float>;

class NativeKv : public ::testing::Test {
 protected:
  void make(int64_t blocks_max, Family family = Family::kLlama) {
    spec_ = tiny_spec(family, true);
    block_ = int64_t{4} * spec_.layers * spec_.kv_heads * 2 * kBlock * spec_.head_dim;
    NativeOptions options;
    options.threads = 2;
    options.kv_bytes_max = blocks_max * block_;
    engine_ = make_engine(spec_, MemoryTensors(spec_, 7), options).value();
    ASSERT_TRUE(engine_->adapters().create(AdapterId("a"), random_adapter(spec_, 3, 1)).ok());
  }
  SequenceId open(const std::optional<AdapterId>& adapter = std::nullopt, uint64_t scope = 0) {
    return engine_->decoding().open(adapter, scope).value();
  }
  // Returns all logits of the tokens, fed `piece` at a time.
  Logits feed(SequenceId sequence, std::span<const int32_t> tokens, size_t piece = 1000) {
    Logits all;
    while (!tokens.empty()) {
      const auto part = tokens.first(std::min(piece, tokens.size()));
      tokens = tokens.subspan(part.size());
      const Feed one{sequence, part, static_cast<int>(part.size())};
      const Status status =
          engine_->decoding().step({&one, 1}, for_each_row([&](size_t, int, std::span<const float> logits) {
                                     all.insert(all.end(), logits.begin(), logits.end());
                                   }));
      EXPECT_TRUE(status.ok()) << status.error().message;
    }
    return all;
  }
  // Returns the logits for the tokens from `first` on, from a sequence that shares nothing.
  Logits alone(const std::optional<AdapterId>& adapter, std::span<const int32_t> tokens, size_t first) {
    const SequenceId sequence = open(adapter, ++scope_);
    feed(sequence, tokens.first(first));
    Logits logits = feed(sequence, tokens.subspan(first));
    engine_->decoding().close(sequence);
    return logits;
  }
  int64_t used() const { return engine_->decoding().kv_usage().used / block_; }
  int64_t cached() const { return engine_->decoding().kv_usage().cached / block_; }

  ModelSpec spec_;
  int64_t block_ = 0;
  std::unique_ptr<Engine> engine_;
  uint64_t scope_ = 100;  // no other sequence has it
};

TEST_F(NativeKv, ForkThenBothContinueAsIfAlone) {
  make(0);
  for (const int shared : {1, 40, 64, 100}) {
    const auto past = random_tokens(spec_, shared, 1);
    const SequenceId left = open();
    feed(left, past);
    const SequenceId right = engine_->decoding().fork(left).value();
    for (const auto& [sequence, seed, piece] : {std::tuple{left, 2, 3}, {right, 3, 1}}) {
      const auto future = random_tokens(spec_, 30, static_cast<uint64_t>(seed));
      auto whole = past;
      whole.insert(whole.end(), future.begin(), future.end());
      EXPECT_EQ(feed(sequence, future, static_cast<size_t>(piece)), alone(std::nullopt, whole, past.size())) << shared;
    }
    engine_->decoding().close(left);
    engine_->decoding().close(right);
  }
  EXPECT_EQ(used(), 0);
}

TEST_F(NativeKv, ForkedSequencesThenASharedBlockCountsOnce) {
  make(0);
  EXPECT_EQ(engine_->decoding().kv_usage().block, block_);
  EXPECT_EQ(engine_->decoding().kv_usage().positions, kBlock);
  const SequenceId left = open();
  EXPECT_EQ(used(), 0);
  feed(left, random_tokens(spec_, 65, 1));
  EXPECT_EQ(used(), 2);
  const SequenceId right = engine_->decoding().fork(left).value();
  EXPECT_EQ(used(), 3) << "the full one is shared, the last one copied";
  engine_->decoding().close(left);
  EXPECT_EQ(used(), 2);
  engine_->decoding().close(right);
  EXPECT_EQ(used(), 0);
  EXPECT_EQ(cached(), 0) << "without a limit nothing is kept";
}

TEST_F(NativeKv, AFullCacheRefusesAStepAndChangesNothing) {
  make(3);
  const auto tokens = random_tokens(spec_, 200, 3);
  const SequenceId first = open();
  const SequenceId second = open();
  feed(first, std::span(tokens).first(65));
  feed(second, std::span(tokens).subspan(1, 60));
  EXPECT_EQ(used(), 3);
  const Feed one{first, std::span(tokens).subspan(65, 64), 1};
  const auto refused =
      engine_->decoding().step({&one, 1}, for_each_row([](size_t, int, std::span<const float>) { FAIL(); }));
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(refused.error().reason, "kv_cache_full");
  EXPECT_EQ(engine_->decoding().fork(first).error().reason, "kv_cache_full");
  engine_->decoding().close(second);
  const Logits later = feed(first, std::span(tokens).subspan(65, 64));
  engine_->decoding().close(first);
  EXPECT_EQ(later, alone(std::nullopt, std::span(tokens).first(129), 65));
  EXPECT_EQ(used(), 0);
}

TEST_F(NativeKv, APrefixThatWasComputedBeforeGivesTheSameBits) {
  for (const FamilyFacts& facts : families()) {
    make(8, facts.family);
    for (const std::optional<AdapterId>& adapter : {std::optional<AdapterId>(), std::optional<AdapterId>("a")}) {
      const auto tokens = random_tokens(spec_, 150, 5);
      const Logits fresh = alone(adapter, tokens, 128);
      const SequenceId writer = open(adapter, 1);
      feed(writer, tokens, 7);
      engine_->decoding().close(writer);
      const SequenceId reader = open(adapter, 1);
      EXPECT_EQ(engine_->decoding().adopt_prefix(reader, tokens), 128);
      EXPECT_EQ(feed(reader, std::span(tokens).subspan(128)), fresh);
      engine_->decoding().close(reader);
    }
  }
}

TEST_F(NativeKv, OnlyTheSameAdapterVersionAndScopeShare) {
  make(16);
  const auto tokens = random_tokens(spec_, 70, 5);
  const AdapterId id("a");
  const auto hits = [&](const std::optional<AdapterId>& adapter, uint64_t scope) {
    const SequenceId sequence = open(adapter, scope);
    const int hit = engine_->decoding().adopt_prefix(sequence, tokens);
    engine_->decoding().close(sequence);
    return hit;
  };
  const auto fill = [&] {
    const SequenceId sequence = open(id, 1);
    feed(sequence, tokens);
    engine_->decoding().close(sequence);
  };
  fill();
  EXPECT_EQ(hits(id, 1), kBlock);
  EXPECT_EQ(hits(id, 2), 0);
  EXPECT_EQ(hits(std::nullopt, 1), 0);
  ASSERT_TRUE(engine_->training().optim_step(id, {}).ok());
  EXPECT_EQ(hits(id, 1), 0) << "its matrices changed";
  EXPECT_EQ(cached(), 0);
  fill();
  ASSERT_TRUE(engine_->adapters().import_state(id, random_adapter(spec_, 3, 9)).ok());
  EXPECT_EQ(hits(id, 1), 0);
  fill();
  ASSERT_TRUE(engine_->adapters().remove(id).ok());
  ASSERT_TRUE(engine_->adapters().create(id, random_adapter(spec_, 3, 1)).ok());
  EXPECT_EQ(hits(id, 1), 0) << "another adapter of the same name";
}

TEST_F(NativeKv, IdenticalSequencesInOneStepShareOneCopyAndGiveTheSameBits) {
  make(8);
  const auto tokens = random_tokens(spec_, 100, 5);
  const SequenceId left = open();
  const SequenceId right = open();
  const Feed both[] = {{left, std::span(tokens).first(70), 0}, {right, std::span(tokens).first(70), 0}};
  ASSERT_TRUE(engine_->decoding().step(both, for_each_row([](size_t, int, std::span<const float>) { FAIL(); })).ok());
  EXPECT_EQ(used(), 3);
  const Logits expected = alone(std::nullopt, tokens, 70);
  EXPECT_EQ(feed(left, std::span(tokens).subspan(70), 4), expected);
  EXPECT_EQ(feed(right, std::span(tokens).subspan(70)), expected);
  engine_->decoding().close(left);
  engine_->decoding().close(right);
}

}  // namespace
}  // namespace tuft::engine::native::test
