#include "engine/sample/distribution.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tuft::engine {
namespace {

std::vector<float> some_logits(size_t size) {
  std::vector<float> logits(size);
  for (size_t i = 0; i < size; ++i) {
    logits[i] = static_cast<float>(12.0 * std::sin(0.37 * static_cast<double>(i * i % 1009)));
  }
  return logits;
}

double reference_logprob(const std::vector<float>& logits, size_t token) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - 12.0);
  return static_cast<double>(logits[token]) - 12.0 - std::log(sum);
}

TEST(Distribution, LogprobsAreThoseOfTheWholeVocabularyInDoublePrecision) {
  for (const size_t size : {1U, 7U, 16U, 1000U, 1024U, 5003U}) {
    const auto logits = some_logits(size);
    Distribution distribution;
    ASSERT_TRUE(distribution.load(logits));
    for (size_t token = 0; token < size; token += 1 + size / 50) {
      EXPECT_NEAR(distribution.logprob(static_cast<int32_t>(token)), reference_logprob(logits, token), 4e-6);
    }
  }
}

TEST(Distribution, NonFiniteRowsAreRefused) {
  Distribution distribution;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(distribution.load(std::vector<float>{1, nan, 2}));
  EXPECT_FALSE(distribution.load(std::vector<float>{1, inf, 2}));
  EXPECT_FALSE(distribution.load(std::vector<float>{-inf, -inf}));
  const std::vector<float> masked = {-inf, 0, -inf};
  ASSERT_TRUE(distribution.load(masked));
  EXPECT_EQ(distribution.draw(1.0F, 0, 1.0F, 0.999999), 1);
}

TEST(Distribution, DrawsFollowTheProbabilities) {
  const std::vector<float> logits = {std::log(0.1F), std::log(0.2F), std::log(0.7F)};
  Distribution distribution;
  ASSERT_TRUE(distribution.load(logits));
  std::vector<int> counts(3);
  for (uint64_t i = 0; i < 20000; ++i) {
    ++counts[static_cast<size_t>(distribution.draw(1.0F, -1, 1.0F, uniform_at(3, 0, i)))];
  }
  EXPECT_NEAR(counts[0] / 20000.0, 0.1, 0.01);
  EXPECT_NEAR(counts[1] / 20000.0, 0.2, 0.012);
  EXPECT_NEAR(counts[2] / 20000.0, 0.7, 0.013);
}

TEST(Distribution, TemperatureSharpensAndZeroTakesTheMostLikely) {
  const std::vector<float> logits = {1.0F, 3.0F, 3.0F, 2.0F};
  Distribution distribution;
  ASSERT_TRUE(distribution.load(logits));
  EXPECT_EQ(distribution.draw(0.0F, -1, 1.0F, 0.99), 1);
  EXPECT_EQ(distribution.draw(1e-30F, -1, 1.0F, 0.99), 1);
  int first = 0;
  for (uint64_t i = 0; i < 4000; ++i) first += distribution.draw(0.1F, -1, 1.0F, uniform_at(1, 1, i)) == 3 ? 1 : 0;
  EXPECT_LT(first, 4);
}

TEST(Distribution, TopKAndTopPKeepTheSmallestSet) {
  const std::vector<float> logits = {std::log(0.15F), std::log(0.5F), std::log(0.05F), std::log(0.3F)};
  Distribution distribution;
  ASSERT_TRUE(distribution.load(logits));
  std::vector<int> by_k(4);
  std::vector<int> by_p(4);
  std::vector<int> by_both(4);
  for (uint64_t i = 0; i < 2000; ++i) {
    const double u = uniform_at(9, 2, i);
    ++by_k[static_cast<size_t>(distribution.draw(1.0F, 2, 1.0F, u))];
    ++by_p[static_cast<size_t>(distribution.draw(1.0F, -1, 0.9F, u))];
    ++by_both[static_cast<size_t>(distribution.draw(1.0F, 2, 0.6F, u))];
  }
  EXPECT_EQ(by_k[0] + by_k[2], 0);
  EXPECT_NEAR(by_k[1] / 2000.0, 0.625, 0.04);
  EXPECT_EQ(by_p[2], 0);
  EXPECT_GT(by_p[0], 0);
  EXPECT_EQ(by_both[1], 2000);
}

TEST(Distribution, TopListsAreOrderedWithTiesByTheSmallerId) {
  const std::vector<float> logits = {1, 5, 2, 5};
  Distribution distribution;
  ASSERT_TRUE(distribution.load(logits));
  const auto top = distribution.top(3);
  ASSERT_EQ(top.size(), 3U);
  EXPECT_EQ(top[0].token, 1);
  EXPECT_EQ(top[1].token, 3);
  EXPECT_EQ(top[2].token, 2);
  EXPECT_FLOAT_EQ(top[0].logprob, distribution.logprob(1));
  EXPECT_EQ(distribution.top(9).size(), 4U);
}

// The meaning of the parameters, by sorting the whole vocabulary.
class SortedReference {
 public:
  explicit SortedReference(std::span<const float> values) {
    for (size_t i = 0; i < values.size(); ++i) ranked_.emplace_back(values[i], static_cast<int32_t>(i));
    std::sort(ranked_.begin(), ranked_.end(), [](const auto& left, const auto& right) {
      return left.first != right.first ? left.first > right.first : left.second < right.second;
    });
  }
  const std::vector<std::pair<float, int32_t>>& ranked() const { return ranked_; }

  int32_t draw(size_t top_k, float top_p, double uniform) const {
    const size_t count = std::min(top_k, ranked_.size());
    double sum = 0;
    for (size_t i = 0; i < count; ++i) sum += static_cast<double>(ranked_[i].first);
    double kept = 0;
    size_t used = 0;
    while (used < count && (used == 0 || kept < static_cast<double>(top_p) * sum)) {
      kept += static_cast<double>(ranked_[used++].first);
    }
    double left = uniform * kept;
    for (size_t i = 0; i + 1 < used; ++i) {
      left -= static_cast<double>(ranked_[i].first);
      if (left < 0) return ranked_[i].second;
    }
    return ranked_[used - 1].second;
  }

 private:
  std::vector<std::pair<float, int32_t>> ranked_;
};

// Rows with equal values, rows that ascend (every entry is a candidate), flat and peaked ones.
std::vector<float> random_row(std::mt19937& random, size_t size) {
  std::vector<float> row(size);
  const auto kind = random() % 4;
  const float spread = std::pow(10.0F, static_cast<float>(random() % 5) - 2.0F);
  for (size_t i = 0; i < size; ++i) {
    const auto noise = static_cast<float>(random() % 10'000) * 1e-4F;
    row[i] = spread * (kind == 0   ? static_cast<float>(random() % 5)
                       : kind == 1 ? static_cast<float>(i) / static_cast<float>(size)
                                   : noise);
    if (kind == 3 && random() % 50 == 0) row[i] = -std::numeric_limits<float>::infinity();
  }
  row[random() % size] = 3.0F * spread;
  return row;
}

TEST(Distribution, TopListsEqualThoseOfASort) {
  std::mt19937 random(3);
  for (int round = 0; round < 400; ++round) {
    const size_t size = 1 + random() % 5000;
    const std::vector<float> row = random_row(random, size);
    const size_t k = 1 + random() % (round % 2 == 0 ? 8 : size);
    Distribution distribution;
    ASSERT_TRUE(distribution.load(row));
    const auto top = distribution.top(static_cast<int>(k));
    const SortedReference sorted(row);
    ASSERT_EQ(top.size(), std::min(k, size));
    for (size_t i = 0; i < top.size(); ++i) {
      ASSERT_EQ(top[i].token, sorted.ranked()[i].second) << "row " << round << ", place " << i;
      ASSERT_EQ(top[i].logprob, distribution.logprob(top[i].token));
    }
  }
}

TEST(Distribution, DrawsEqualThoseFromASortedVocabulary) {
  std::mt19937 random(4);
  Distribution distribution;
  for (int round = 0; round < 1500; ++round) {
    const size_t size = 2 + random() % 6000;
    const std::vector<float> row = random_row(random, size);
    ASSERT_TRUE(distribution.load(row));
    const float temperature = std::pow(10.0F, static_cast<float>(random() % 5) - 2.0F);
    const size_t top_k = random() % 3 == 0 ? size : 1 + random() % size;
    const float top_p = random() % 3 == 0 ? 1.0F : static_cast<float>(1 + random() % 1000) * 1e-3F;
    if (top_k == size && top_p == 1.0F) continue;  // a draw from all is by token, not by rank
    const double uniform = uniform_at(5, 0, static_cast<uint64_t>(round));
    const int32_t drawn = distribution.draw(temperature, static_cast<int>(top_k), top_p, uniform);
    EXPECT_EQ(drawn, SortedReference(distribution.weights()).draw(top_k, top_p, uniform))
        << "round " << round << ", " << size << " tokens, top_k " << top_k << ", top_p " << top_p;
  }
}

}  // namespace
}  // namespace tuft::engine
