// Compares exponential histograms with a computation of another kind, and checks their limits.
#include "telemetry/metric/exponential.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "telemetry/instrument.h"
#include "telemetry/metric/metric_store.h"
#include "telemetry/tests/collector_fixture.h"

namespace tuft::telemetry::internal {
namespace {

// Returns the index of the bucket (b^i, b^(i+1)] at `scale` by the definition, in extended precision.
int64_t reference_index(double value, int scale) {
  return static_cast<int64_t>(std::ceil(std::ldexp(std::log2l(static_cast<long double>(value)), scale))) - 1;
}

// Returns the largest scale at which the values need at most 160 buckets, and their counts there.
ExponentialPoint reference(const std::vector<double>& values) {
  for (int scale = kExponentialScaleMax;; --scale) {
    ExponentialPoint point;
    point.scale = scale;
    std::map<int64_t, uint64_t> positive;
    std::map<int64_t, uint64_t> negative;
    for (const double value : values) {
      if (value == 0) {
        ++point.zero_count;
      } else {
        ++(value > 0 ? positive : negative)[reference_index(std::fabs(value), scale)];
      }
    }
    bool fits = true;
    for (const auto& [counts, out] : {std::pair{&positive, &point.positive}, {&negative, &point.negative}}) {
      if (counts->empty()) continue;
      const int64_t low = counts->begin()->first;
      const int64_t size = counts->rbegin()->first - low + 1;
      fits = fits && size <= static_cast<int64_t>(kExponentialBucketsMax);
      if (!fits) break;
      out->offset = static_cast<int32_t>(low);
      out->counts.resize(static_cast<size_t>(size));
      for (const auto& [index, count] : *counts) out->counts[static_cast<size_t>(index - low)] = count;
    }
    if (fits) return point;
  }
}

std::string text(const ExponentialPoint& point) {
  std::string out = "scale " + std::to_string(point.scale) + ", zero " + std::to_string(point.zero_count);
  for (const ExponentialBuckets* buckets : {&point.positive, &point.negative}) {
    out += ", from " + std::to_string(buckets->offset) + ":";
    for (const uint64_t count : buckets->counts) out += " " + std::to_string(count);
  }
  return out;
}

ExponentialPoint recorded(const std::vector<double>& values) {
  ExponentialHistogram histogram;
  for (const double value : values) histogram.add(value, 1);
  return histogram.read();
}

std::vector<double> random_values(std::mt19937_64& random) {
  std::uniform_int_distribution<int> sizes(0, 300);
  std::uniform_real_distribution<double> unit(0, 1);
  const double spread = std::pow(10, 4 * unit(random) - 3);
  const double centre = 40 * unit(random) - 20;
  std::normal_distribution<double> logs(centre, spread);
  const bool both_signs = unit(random) < 0.3;
  const bool zeros = unit(random) < 0.3;
  std::vector<double> values(static_cast<size_t>(sizes(random)));
  for (double& value : values) {
    value = std::clamp(std::exp(logs(random)), std::numeric_limits<double>::min(), 1e300);
    if (both_signs && unit(random) < 0.5) value = -value;
    if (zeros && unit(random) < 0.1) value = 0;
  }
  return values;
}

TEST(Exponential, RandomValuesThenTheBestScaleAndTheReferencesCounts) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 500; ++round) {
    const std::vector<double> values = random_values(random);
    const ExponentialPoint got = recorded(values);
    ASSERT_EQ(text(got), text(reference(values))) << "round " << round << ", " << values.size() << " values";
    ASSERT_EQ(got.count(), values.size());
  }
}

TEST(Exponential, PowersOfTwoThenTheUpperBoundBelongsToTheBucket) {
  // At scale 20 the bucket of index -1 is (2^(-2^-20), 1].
  EXPECT_EQ(exponential_index(1), -1);
  EXPECT_EQ(exponential_index(2), (1 << 20) - 1);
  EXPECT_EQ(exponential_index(0.5), -(1 << 20) - 1);
  EXPECT_EQ(exponential_index(std::nextafter(1.0, 2.0)), 0);
  EXPECT_EQ(exponential_index(std::nextafter(2.0, 0.0)), (1 << 20) - 1);
  EXPECT_EQ(exponential_index(std::nextafter(2.0, 3.0)), 1 << 20);
  for (int exponent = -1022; exponent < 1024; ++exponent)
    ASSERT_EQ(exponential_index(std::ldexp(1.0, exponent)), (int64_t{exponent} << 20) - 1) << exponent;
}

TEST(Exponential, OneValueThenScale20AndOneBucket) {
  const ExponentialPoint point = recorded({3.7, 3.7, 3.7});
  EXPECT_EQ(point.scale, 20);
  EXPECT_EQ(point.positive.counts, (std::vector<uint64_t>{3}));
  EXPECT_TRUE(point.negative.counts.empty());
}

TEST(Exponential, AllDoublesThenTheyFitInto160Buckets) {
  const double least = std::numeric_limits<double>::denorm_min();
  const double most = std::numeric_limits<double>::max();
  const ExponentialPoint point = recorded({least, most, -least, -most, 0, 1});
  EXPECT_LE(point.positive.counts.size(), kExponentialBucketsMax);
  EXPECT_EQ(point.count(), 6u);
  EXPECT_EQ(point.scale, -4);
}

TEST(Exponential, ValuesGrowInBothDirectionsThenAsInAnyOtherOrder) {
  std::vector<double> values;
  for (int i = 0; i < 400; ++i) values.push_back(std::pow(1.01, i % 2 == 0 ? i : -i));
  const std::string expected = text(reference(values));
  EXPECT_EQ(text(recorded(values)), expected);
  std::reverse(values.begin(), values.end());
  EXPECT_EQ(text(recorded(values)), expected);
}

TEST(Exponential, SeveralThreadsThenNoValueIsLost) {
  ExponentialHistogram histogram;
  constexpr int kEach = 20'000;
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed) {
    threads.emplace_back([&histogram, seed] {
      std::mt19937 random(seed);
      std::uniform_real_distribution<double> logs(-3, 3);
      for (int i = 0; i < kEach; ++i) histogram.add(std::exp(logs(random) * (1.0 + i / 1000)), 1);
    });
  }
  uint64_t before = 0;
  for (int i = 0; i < 100; ++i) {
    const uint64_t now = histogram.read().count();
    EXPECT_GE(now, before);
    before = now;
  }
  for (std::thread& thread : threads) thread.join();
  const ExponentialPoint point = histogram.read();
  EXPECT_EQ(point.count(), 4u * kEach);
  EXPECT_LE(point.positive.counts.size(), kExponentialBucketsMax);
}

TEST(ExponentialDifference, TwoReadingsThenWhatCameBetween) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    const std::vector<double> first = random_values(random);
    const std::vector<double> second = random_values(random);
    ExponentialHistogram histogram;
    for (const double value : first) histogram.add(value, 1);
    const ExponentialPoint before = histogram.read();
    for (const double value : second) histogram.add(value, 1);
    const ExponentialPoint now = histogram.read();
    const ExponentialPoint delta = exponential_difference(now, before);
    ASSERT_EQ(delta.count(), second.size());
    ASSERT_EQ(delta.scale, now.scale);
    if (second.empty()) continue;
    // The second values alone may have a better scale.
    ExponentialHistogram alone;
    for (const double value : second) alone.add(value, 1);
    const ExponentialPoint expected = exponential_difference(alone.read(), {.scale = now.scale});
    ASSERT_EQ(text(delta), text(expected)) << "round " << round;
  }
}

TEST(ExponentialExport, OptionThenExponentialPointsOverOtlp) {
  TelemetryConfig config;
  config.histogram_aggregation = HistogramAggregation::kExponential;
  WithCollector collector(config);
  const Histogram histogram({.name = "test.exponential", .unit = "s", .description = "what", .bounds = {1}});
  for (const double value : {0.0, 1.0, 2.0, 4.0}) histogram.record(value);
  ASSERT_TRUE(collector.flush());
  const auto metric = collector.receiver.metric("test.exponential");
  ASSERT_TRUE(metric && !metric->points.empty());
  EXPECT_EQ(metric->kind, "exponential_histogram");
  const testing::ReceivedPoint& point = metric->points[0];
  EXPECT_EQ(point.count, 4u);
  EXPECT_EQ(point.sum, 7);
  EXPECT_EQ(point.min, 0);
  EXPECT_EQ(point.max, 4);
  EXPECT_EQ(point.zero_count, 1u);
  EXPECT_EQ(point.scale, 6);
  EXPECT_EQ(point.offset, -1);
  ASSERT_EQ(point.bucket_counts.size(), 129u);
  EXPECT_EQ(point.bucket_counts[0] + point.bucket_counts[64] + point.bucket_counts[128], 3u);
}

TEST(ExponentialExport, DeltaThenOnlyTheValuesOfTheInterval) {
  TelemetryConfig config;
  config.histogram_aggregation = HistogramAggregation::kExponential;
  config.temporality = Temporality::kDelta;
  WithCollector collector(config);
  const Histogram histogram({.name = "test.exponential.delta", .unit = "s", .description = "what", .bounds = {1}});
  for (const double value : {1.0, 2.0, 4.0}) histogram.record(value);
  ASSERT_TRUE(collector.flush());
  histogram.record(2);
  histogram.record(-2);
  ASSERT_TRUE(collector.flush());
  const auto metric = collector.receiver.metric("test.exponential.delta");
  ASSERT_TRUE(metric && !metric->points.empty());
  const testing::ReceivedPoint& point = metric->points[0];
  EXPECT_FALSE(metric->cumulative);
  EXPECT_EQ(point.count, 2u);
  EXPECT_EQ(point.sum, 0);
  EXPECT_EQ(point.scale, 6) << "that of all values so far";
  EXPECT_EQ(point.offset, 63);
  EXPECT_EQ(point.bucket_counts, (std::vector<uint64_t>{1}));
}

}  // namespace
}  // namespace tuft::telemetry::internal
