#include "engine/sample/distribution.h"

#include <cmath>
#include <limits>

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

}  // namespace
}  // namespace tuft::engine
