#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "telemetry/metric/metric_store.h"
#include "telemetry/testing/program_metrics.h"
#include "telemetry/tests/collector_fixture.h"

namespace tuft::telemetry {
namespace {

using testing::text_of;

TEST(Metrics, DeveloperGuideThenValuesArrive) {
  WithCollector collector;
  testing::program_metrics().created.add(1, {{"operation_type", "forward_backward"}});
  testing::program_metrics().created.add(2, {{"operation_type", "forward_backward"}});
  testing::program_metrics().queue_length.add(3, {{"queue_state", "active"}});
  testing::program_metrics().queue_length.add(-2, {{"queue_state", "active"}});
  testing::program_metrics().execution_time.record(0.123, {{"operation_type", "forward_backward"}});
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(collector.sum("tuft.futures.created", {{"operation_type", "forward_backward"}}), 3);
  EXPECT_EQ(collector.sum("tuft.futures.queue_length", {{"queue_state", "active"}}), 1);
  const auto created = collector.receiver.metric("tuft.futures.created");
  EXPECT_TRUE(created->monotonic);
  EXPECT_TRUE(created->cumulative);
  EXPECT_EQ(created->scope, "tuft");
  EXPECT_FALSE(collector.receiver.metric("tuft.futures.queue_length")->monotonic);
  const auto time = collector.receiver.metric("tuft.futures.execution_time");
  ASSERT_TRUE(time);
  EXPECT_EQ(time->kind, "histogram");
  EXPECT_EQ(time->unit, "s");
  EXPECT_EQ(text_of(time->resource, "service.name"), "tuft");
}

TEST(Counter, LabelOrderDiffersThenOneSeries) {
  WithCollector collector;
  const Counter counter(
      {.name = "test.order", .unit = "1", .description = "", .labels = {"a", "b", "k", "id", "state", "who", "x"}});
  counter.add(1, {{"a", "1"}, {"b", "2"}});
  counter.add(1, {{"b", "2"}, {"a", "1"}});
  counter.add(-5, {{"a", "1"}, {"b", "2"}});
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(collector.receiver.metric("test.order")->points.size(), 1u);
  EXPECT_EQ(collector.sum("test.order", {{"a", "1"}, {"b", "2"}}), 2);
}

TEST(Histogram, ValuesOnTheBoundsThenUpperBoundsAreInclusive) {
  WithCollector collector;
  const Histogram histogram(
      {.name = "test.bounds", .unit = "s", .description = "", .labels = {"k"}, .bounds = {1, 2, 5}});
  for (const double value : {0.5, 1.0, 1.5, 2.0, 5.0, 5.1}) histogram.record(value, {{"k", "v"}});
  ASSERT_TRUE(collector.flush());
  const auto metric = collector.receiver.metric("test.bounds");
  ASSERT_TRUE(metric);
  const auto* point = metric->point({{"k", "v"}});
  ASSERT_NE(point, nullptr);
  EXPECT_EQ(point->bounds, (std::vector<double>{1, 2, 5}));
  EXPECT_EQ(point->bucket_counts, (std::vector<uint64_t>{2, 2, 1, 1}));
  EXPECT_EQ(point->count, 6u);
  EXPECT_DOUBLE_EQ(point->sum, 15.1);
  EXPECT_EQ(point->min, 0.5);
  EXPECT_EQ(point->max, 5.1);
}

TEST(Histogram, NotFiniteThenCountedAndTheSeriesIsClean) {
  WithCollector collector;
  testing::program_metrics().loss.record(1.0, {{"base_model", "m"}});
  testing::program_metrics().loss.record(std::nan(""), {{"base_model", "m"}});
  testing::program_metrics().loss.record(std::numeric_limits<double>::infinity(), {{"base_model", "m"}});
  ASSERT_TRUE(collector.flush());
  ASSERT_TRUE(collector.flush());
  const auto metric = collector.receiver.metric("tuft.training.loss");
  ASSERT_TRUE(metric);
  const auto* point = metric->point({{"base_model", "m"}});
  ASSERT_NE(point, nullptr);
  EXPECT_EQ(point->count, 1u);
  EXPECT_EQ(point->sum, 1.0);
  EXPECT_EQ(collector.sum("tuft.telemetry.nonfinite", {{"instrument", "tuft.training.loss"}}), 2);
}

TEST(Counter, LabelAttackThenBoundedAndNothingIsLost) {
  WithCollector collector;
  const Counter counter(
      {.name = "test.attack", .unit = "1", .description = "", .labels = {"a", "b", "k", "id", "state", "who", "x"}});
  constexpr int kSets = 3000;
  for (int i = 0; i < kSets; ++i) counter.add(1, {{"id", std::to_string(i)}});
  ASSERT_TRUE(collector.flush());
  const auto metric = collector.receiver.metric("test.attack");
  ASSERT_TRUE(metric);
  EXPECT_EQ(metric->points.size(), 257u);
  double total = 0;
  for (const auto& point : metric->points) total += point.value;
  EXPECT_EQ(total, kSets);
  EXPECT_EQ(collector.sum("test.attack", {{"otel.metric.overflow", "true"}}), kSets - 256);
  EXPECT_EQ(collector.sum("tuft.telemetry.series.overflowed", {{"instrument", "test.attack"}}), kSets - 256);
}

TEST(Metrics, SeriesThenTheGaugeCountsThemAndItself) {
  WithCollector collector;
  const Counter counter({.name = "test.counted", .unit = "1", .description = "", .labels = {"k"}});
  const auto before = internal::collect_metrics();
  counter.add(1, {{"k", "a"}});
  counter.add(1, {{"k", "b"}});
  const auto after = internal::collect_metrics();
  size_t points = 0;
  for (const auto& metric : after) points += metric.points.size();
  EXPECT_EQ(after.back().info.name, "tuft.telemetry.series");
  EXPECT_EQ(after.back().points.at(0).number, static_cast<double>(points));
  EXPECT_EQ(after.back().points.at(0).number, before.back().points.at(0).number + 2);
}

TEST(Gauge, CallbackTakenAwayThenItNeverRunsAgain) {
  WithCollector collector;
  const ObservableGauge gauge(
      {.name = "test.gauge", .unit = "1", .description = "", .labels = {"a", "b", "k", "id", "state", "who", "x"}});
  auto alive = std::make_unique<std::atomic<bool>>(true);
  gauge.set_callback([state = alive.get()](const ObservableGauge::Observe& observe) {
    ASSERT_TRUE(state->load());
    observe(4, {{"state", "running"}});
    observe(std::nan(""), {{"state", "broken"}});
  });
  std::thread collecting([&] {
    for (int i = 0; i < 20; ++i) collector.flush();
  });
  collector.flush();
  gauge.set_callback({});
  *alive = false;
  alive.reset();
  collecting.join();
  const auto metric = collector.receiver.metric("test.gauge");
  ASSERT_TRUE(metric);
  EXPECT_EQ(metric->kind, "gauge");
  ASSERT_EQ(metric->points.size(), 1u);
  EXPECT_EQ(metric->points[0].value, 4);
}

TEST(Gauge, LabelSetNoLongerObservedThenItDisappears) {
  WithCollector collector;
  const ObservableGauge gauge(
      {.name = "test.stale", .unit = "1", .description = "", .labels = {"a", "b", "k", "id", "state", "who", "x"}});
  gauge.set_callback([](const ObservableGauge::Observe& observe) { observe(1, {{"who", "a"}}); });
  ASSERT_TRUE(collector.flush());
  gauge.set_callback([](const ObservableGauge::Observe& observe) { observe(2, {{"who", "b"}}); });
  ASSERT_TRUE(collector.flush());
  gauge.set_callback({});
  const auto metric = collector.receiver.metric("test.stale");
  ASSERT_EQ(metric->points.size(), 1u);
  EXPECT_EQ(text_of(metric->points[0].labels, "who"), "b");
}

TEST(Counter, ManyThreadsThenExact) {
  WithCollector collector;
  const Counter counter(
      {.name = "test.threads", .unit = "1", .description = "", .labels = {"a", "b", "k", "id", "state", "who", "x"}});
  const Histogram histogram(
      {.name = "test.threads.time", .unit = "s", .description = "", .bounds = bounds_operation()});
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      const BoundCounter bound = counter.with({{"x", "y"}});
      for (int i = 0; i < 5000; ++i) {
        bound.add(1);
        histogram.record(0.5, {});
      }
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(collector.sum("test.threads", {{"x", "y"}}), 40'000);
  const auto time = collector.receiver.metric("test.threads.time");
  EXPECT_EQ(time->points.at(0).count, 40'000u);
  EXPECT_EQ(time->points.at(0).sum, 20'000);
}

TEST(Counter, TelemetryOffThenNothingIsTaken) {
  const Counter counter(
      {.name = "test.off", .unit = "1", .description = "", .labels = {"a", "b", "k", "id", "state", "who", "x"}});
  const BoundCounter bound = counter.with({{"x", "y"}});
  bound.add(5);
  WithCollector collector;
  bound.add(1);
  ASSERT_TRUE(collector.flush());
  EXPECT_EQ(collector.sum("test.off", {{"x", "y"}}), 1);
}

TEST(Counter, MadeTwiceThenOneInstrument) {
  const Counter first({.name = "test.twice",
                       .unit = "1",
                       .description = "first",
                       .labels = {"a", "b", "k", "id", "state", "who", "x"}});
  const Counter second({.name = "test.twice",
                        .unit = "s",
                        .description = "second",
                        .labels = {"a", "b", "k", "id", "state", "who", "x"}});
  const auto all = instrument_catalogue();
  EXPECT_EQ(std::count_if(all.begin(), all.end(), [](const auto& info) { return info.name == "test.twice"; }), 1);
}

}  // namespace
}  // namespace tuft::telemetry
