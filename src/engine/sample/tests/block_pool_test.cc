#include "engine/sample/block_pool.h"

#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace tuft::engine {
namespace {

using Tokens = std::vector<int32_t>;
using Sequence = BlockPool::Sequence;

Tokens numbers(int count, int32_t first = 0) {
  Tokens tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

Sequence owned(uint64_t version = 0, uint64_t scope = 0) {
  Sequence sequence;
  sequence.owner = {version, scope};
  return sequence;
}

void feed(BlockPool& pool, Sequence& sequence, const Tokens& tokens) {
  ASSERT_TRUE(pool.extend(sequence, static_cast<int>(tokens.size())));
  pool.commit(sequence, tokens);
}

TEST(BlockPool, BlocksAreTakenAsASequenceGrowsAndNotBefore) {
  BlockPool pool(4, 3);
  Sequence sequence = owned();
  EXPECT_EQ(pool.used(), 0);
  feed(pool, sequence, numbers(4));
  EXPECT_EQ(pool.used(), 1);
  feed(pool, sequence, numbers(5, 4));
  EXPECT_EQ(pool.used(), 3);
  feed(pool, sequence, numbers(3, 9));
  EXPECT_EQ(pool.used(), 3);
  EXPECT_FALSE(pool.extend(sequence, 1));
  EXPECT_EQ(sequence.blocks.size(), 3U);
  pool.close(sequence);
  EXPECT_EQ(pool.used(), 0);
  EXPECT_EQ(pool.cached(), 3);
}

TEST(BlockPool, BlocksOfAFinishedSequenceAreFound) {
  BlockPool pool(4, 8);
  Sequence first = owned();
  feed(pool, first, numbers(10));
  const auto blocks = first.blocks;
  pool.close(first);
  EXPECT_EQ(pool.cached(), 2) << "only full blocks are kept";

  Sequence second = owned();
  EXPECT_EQ(pool.adopt(second, numbers(10)), 8);
  EXPECT_EQ(second.length, 8);
  EXPECT_EQ(second.blocks, (std::vector<BlockId>{blocks[0], blocks[1]}));
  EXPECT_EQ(pool.used(), 2);
  EXPECT_EQ(pool.cached(), 0);

  Sequence third = owned();
  EXPECT_EQ(pool.adopt(third, numbers(8)), 4) << "at least one token is left to be fed";
  Tokens other = numbers(10);
  other[5] = 99;
  Sequence fourth = owned();
  EXPECT_EQ(pool.adopt(fourth, other), 4);
  Sequence fifth = owned();
  EXPECT_EQ(pool.adopt(fifth, numbers(10, 1)), 0);
  for (Sequence* sequence : {&second, &third, &fourth, &fifth}) pool.close(*sequence);
  EXPECT_EQ(pool.used(), 0);
}

TEST(BlockPool, VersionsAndScopesShareNothing) {
  BlockPool pool(4, 8);
  Sequence first = owned(1, 7);
  feed(pool, first, numbers(8));
  for (const auto& [version, scope] : {std::pair<uint64_t, uint64_t>{2, 7}, {1, 8}, {0, 0}, {7, 1}}) {
    Sequence other = owned(version, scope);
    EXPECT_EQ(pool.adopt(other, numbers(9)), 0);
  }
  Sequence same = owned(1, 7);
  EXPECT_EQ(pool.adopt(same, numbers(9)), 8);
  pool.close(first);
  pool.close(same);
  pool.forget(1);
  EXPECT_EQ(pool.cached(), 0);
  EXPECT_EQ(pool.adopt(same, numbers(9)), 0);
}

TEST(BlockPool, ForgottenVersionIsEvictedWithItsLastSequence) {
  BlockPool pool(2, 4);
  Sequence sequence = owned(1);
  feed(pool, sequence, numbers(4));
  pool.forget(1);
  EXPECT_EQ(pool.used(), 2);
  pool.close(sequence);
  EXPECT_EQ(pool.used() + pool.cached(), 0);
  Sequence all = owned();
  EXPECT_TRUE(pool.extend(all, 8)) << "its blocks are free again";
}

TEST(BlockPool, LongestUnusedBlockIsEvictedFirstAndEndsBeforeBeginnings) {
  BlockPool pool(2, 4);
  Sequence old = owned();
  feed(pool, old, {1, 2, 3, 4});
  pool.close(old);
  Sequence young = owned();
  feed(pool, young, {5, 6, 7, 8});
  pool.close(young);
  Sequence other = owned();
  feed(pool, other, {9});
  EXPECT_EQ(pool.evicted(), 1);
  Sequence again = owned();
  EXPECT_EQ(pool.adopt(again, Tokens{1, 2, 3, 4, 0}), 2);
  Sequence still = owned();
  EXPECT_EQ(pool.adopt(still, Tokens{5, 6, 7, 8, 0}), 4);
}

TEST(BlockPool, EqualBlocksBecomeOneCopy) {
  BlockPool pool(4, 8);
  Sequence left = owned();
  Sequence right = owned();
  feed(pool, left, numbers(3));
  feed(pool, right, numbers(3));
  EXPECT_EQ(pool.used(), 2);
  feed(pool, left, {3});
  feed(pool, right, {3});
  EXPECT_EQ(pool.used(), 1);
  EXPECT_EQ(left.blocks, right.blocks);
  EXPECT_EQ(pool.adopt(left, numbers(6, 4)), 0);
  feed(pool, right, numbers(6, 4));
  EXPECT_EQ(pool.adopt(left, numbers(6, 4)), 4) << "while both run";
}

TEST(BlockPool, AForkSharesFullBlocksAndCopiesTheLast) {
  BlockPool pool(4, 4);
  Sequence source = owned();
  feed(pool, source, numbers(6));
  auto fork = pool.fork(source);
  ASSERT_TRUE(fork && fork->copy);
  EXPECT_EQ(fork->copy->first, source.blocks[1]);
  EXPECT_EQ(fork->copy->second, fork->sequence.blocks[1]);
  EXPECT_EQ(pool.used(), 3);
  feed(pool, fork->sequence, {50, 51, 52});
  feed(pool, source, {60});
  EXPECT_EQ(pool.used(), 4);
  EXPECT_FALSE(pool.fork(source)) << "no block for the copy";
  EXPECT_EQ(pool.used(), 4);
  pool.close(source);
  pool.close(fork->sequence);
  EXPECT_EQ(pool.used(), 0);
}

TEST(BlockPool, WithoutALimitNothingIsKept) {
  BlockPool pool(4, 0);
  Sequence sequence = owned();
  feed(pool, sequence, numbers(9));
  Sequence beside = owned();
  EXPECT_EQ(pool.adopt(beside, numbers(9)), 8);
  pool.close(sequence);
  pool.close(beside);
  EXPECT_EQ(pool.used() + pool.cached(), 0);
  EXPECT_EQ(pool.adopt(beside, numbers(9)), 0);
  feed(pool, beside, numbers(9));
  EXPECT_EQ(pool.size(), 3) << "ids are used again";
}

// Compares with a model that keeps every sequence's tokens: adopt() must return only blocks written with those tokens.
TEST(BlockPool, RandomUseKeepsContentsCorrect) {
  std::mt19937 random(5);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  BlockPool pool(3, 12);
  struct Open {
    Sequence sequence;
    Tokens tokens;
  };
  std::vector<Open> open;
  std::vector<Tokens> memory(12, Tokens(3, -1));  // the contents that a back end would have written
  const auto write = [&](const Open& one, int from) {
    for (size_t i = static_cast<size_t>(from); i < one.tokens.size(); ++i) {
      memory[static_cast<size_t>(one.sequence.blocks[i / 3])][i % 3] = one.tokens[i];
    }
  };
  const auto expect_true = [&](const Open& one) {
    for (size_t i = 0; i < one.tokens.size(); ++i) {
      ASSERT_EQ(memory[static_cast<size_t>(one.sequence.blocks[i / 3])][i % 3], one.tokens[i]);
    }
  };
  int adopted = 0;
  for (int round = 0; round < 20000; ++round) {
    const int action = below(10);
    if (open.empty() || (action == 0 && open.size() < 6)) {
      open.push_back({owned(0, static_cast<uint64_t>(below(2))), {}});
    } else if (action == 1) {
      const auto which = open.begin() + below(static_cast<int>(open.size()));
      pool.close(which->sequence);
      open.erase(which);
    } else if (action == 2 && open.size() < 6) {
      const Open& source = open[static_cast<size_t>(below(static_cast<int>(open.size())))];
      auto fork = pool.fork(source.sequence);
      if (!fork) continue;
      if (fork->copy) memory[static_cast<size_t>(fork->copy->second)] = memory[static_cast<size_t>(fork->copy->first)];
      open.push_back({fork->sequence, source.tokens});
      expect_true(open.back());
    } else {
      Open& one = open[static_cast<size_t>(below(static_cast<int>(open.size())))];
      Tokens more(static_cast<size_t>(1 + below(7)));
      for (auto& token : more) token = below(2);
      const int skip = pool.adopt(one.sequence, more);
      adopted += skip;
      one.tokens.insert(one.tokens.end(), more.begin(), more.begin() + skip);
      expect_true(one);
      const Tokens rest(more.begin() + skip, more.end());
      if (!pool.extend(one.sequence, static_cast<int>(rest.size()))) {
        EXPECT_GT(pool.used() + 3, 12);
        continue;
      }
      const int from = one.sequence.length;
      one.tokens.insert(one.tokens.end(), rest.begin(), rest.end());
      write(one, from);
      pool.commit(one.sequence, rest);
      expect_true(one);
    }
    ASSERT_LE(pool.used() + pool.cached(), 12);
  }
  EXPECT_GT(adopted, 100);
  EXPECT_GT(pool.evicted(), 100);
  for (Open& one : open) pool.close(one.sequence);
  EXPECT_EQ(pool.used(), 0);
}

TEST(BlockPool, UnwrittenPositionsAreCounted) {
  BlockPool pool(4, 8);
  Sequence first = owned();
  feed(pool, first, numbers(5));
  EXPECT_EQ(pool.empty(), 3);
  auto fork = pool.fork(first);
  ASSERT_TRUE(fork.has_value());
  EXPECT_EQ(pool.empty(), 6) << "each has an end of its own";
  ASSERT_TRUE(pool.extend(first, 4));
  EXPECT_EQ(pool.empty(), 10);
  pool.close(first);
  EXPECT_EQ(pool.empty(), 3);
  Sequence second = owned();
  EXPECT_EQ(pool.adopt(second, numbers(6)), 4);
  EXPECT_EQ(pool.empty(), 3);
  pool.close(second);
  pool.close(fork->sequence);
  EXPECT_EQ(pool.empty(), 0);
}

class WatchedBlocks : public ::testing::Test {
 protected:
  using What = KvBlockTime::What;
  // Returns the times of the first block, which is watched.
  void expect_times(const std::vector<std::pair<What, Nanos>>& expected) {
    std::vector<std::pair<What, Nanos>> times;
    for (const KvBlockTime& one : pool_.take_times()) times.emplace_back(one.what, one.time);
    EXPECT_EQ(times, expected);
  }

  FakeClock clock_;
  BlockPool pool_{4, 2, clock_};
};

TEST_F(WatchedBlocks, ReuseAndEvictionAreTimed) {
  Sequence first = owned();
  feed(pool_, first, numbers(4));
  clock_.advance(3 * kSecond);
  pool_.close(first);
  expect_times({});
  clock_.advance(5 * kSecond);
  Sequence second = owned();
  ASSERT_EQ(pool_.adopt(second, numbers(5)), 4);
  expect_times({{What::kReuseGap, 5 * kSecond}});
  Sequence third = owned();
  ASSERT_EQ(pool_.adopt(third, numbers(5)), 4);
  expect_times({});
  pool_.close(second);
  pool_.close(third);
  clock_.advance(7 * kSecond);
  Sequence other = owned();
  feed(pool_, other, numbers(8, 100));
  expect_times({{What::kIdle, 7 * kSecond}, {What::kLifetime, 15 * kSecond}});
}

TEST_F(WatchedBlocks, ForgottenAndPartialBlocksEndTheirLifetime) {
  Sequence first = owned(1);
  feed(pool_, first, numbers(4));
  pool_.close(first);
  clock_.advance(kSecond);
  pool_.forget(1);
  expect_times({{What::kLifetime, kSecond}});
  for (int i = 1; i < BlockPool::kWatchEvery; ++i) {
    Sequence sequence = owned();
    feed(pool_, sequence, {1});
    pool_.close(sequence);
  }
  expect_times({});
  Sequence watched = owned();
  feed(pool_, watched, {1});
  clock_.advance(kSecond);
  pool_.close(watched);
  expect_times({{What::kLifetime, kSecond}});
}

TEST_F(WatchedBlocks, OnlyTheNewestTimesAreKept) {
  for (size_t i = 0; i < (BlockPool::kTimesMax + 10) * BlockPool::kWatchEvery; ++i) {
    Sequence sequence = owned();
    feed(pool_, sequence, {1});
    pool_.close(sequence);
  }
  EXPECT_EQ(pool_.take_times().size(), BlockPool::kTimesMax);
  EXPECT_TRUE(pool_.take_times().empty());
}

}  // namespace
}  // namespace tuft::engine
