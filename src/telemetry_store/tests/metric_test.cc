// Metric series: rates, resets, gauges, quantiles, groups, and what a restart keeps.
#include <cmath>

#include <gmock/gmock.h>

#include "telemetry_store/tests/store_fixture.h"

namespace tuft::telemetry_store {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using Kind = BuiltMetric::Kind;

class Metrics : public StoreOnDiskTest {
 protected:
  // Snapshots come at full ten seconds, as the steps of most queries.
  Metrics() { clock_.advance(10 * kSecond - now() % (10 * kSecond)); }

  // A snapshot each ten seconds.
  void tick(const std::vector<BuiltMetric>& metrics, const Source& source = {}) {
    clock_.advance(10 * kSecond);
    add(metrics, source);
  }
  std::vector<double> points(MetricQuery query) {
    const auto answer = store_->metric(kOperator, query);
    EXPECT_TRUE(answer.ok()) << (answer.ok() ? "" : answer.error().message);
    return answer.ok() ? answer->series.at(0).points : std::vector<double>{};
  }
  void report(const std::string& name, double value, Nanos after, const Source& source = {}) {
    clock_.advance(after);
    add({{.name = name, .kind = Kind::kCounter, .value = value}}, source);
  }
  std::vector<double> steps(std::string name, MetricFunction function, Nanos from, Nanos step) {
    return points(
        {.name = std::move(name), .function = function, .time = {.from = from, .until = now()}, .step = step});
  }
  double increase(std::string name, Nanos from, Nanos step = 10 * kSecond) {
    double all = 0;
    for (const double value : steps(std::move(name), MetricFunction::kIncrease, from, step)) {
      all += std::isnan(value) ? 0 : value;
    }
    return all;
  }
  // The last `seconds` as one step that ends now.
  double last(std::string name, MetricFunction function, Nanos length = 20 * kSecond) {
    const std::vector<double> found = points({.name = std::move(name),
                                              .function = function,
                                              .time = {.from = now() - now() % length, .until = now() + 1},
                                              .step = length});
    return found.empty() ? NAN : found.back();
  }
};

TEST_F(Metrics, CountersGiveRatesAndSurviveResets) {
  const Nanos start = now();
  const auto counter = [](double value) {
    return std::vector<BuiltMetric>{{.name = "c", .kind = Kind::kCounter, .value = value}};
  };
  tick(counter(100));  // counted before anybody looked
  tick(counter(150));
  tick(counter(170));
  tick(counter(30));  // the process began anew
  const auto sum = [&](MetricFunction function) {
    double all = 0;
    for (const double value : points(
             {.name = "c", .function = function, .time = {.from = start, .until = now() + 1}, .step = 10 * kSecond})) {
      if (!std::isnan(value)) all += value;
    }
    return all;
  };
  EXPECT_DOUBLE_EQ(sum(MetricFunction::kIncrease), 100);
  EXPECT_NEAR(sum(MetricFunction::kRate), 10, 1e-6);
}

TEST_F(Metrics, ASeriesThatAppearsLaterCountsFromZero) {
  tick({{.name = "other", .kind = Kind::kCounter, .value = 1}});
  tick({{.name = "other", .kind = Kind::kCounter, .value = 1}, {.name = "errors", .kind = Kind::kCounter, .value = 3}});
  const std::vector<double> found = points({.name = "errors",
                                            .function = MetricFunction::kIncrease,
                                            .time = {.from = now() - 30 * kSecond, .until = now() + 1},
                                            .step = 60 * kSecond});
  double all = 0;
  for (const double value : found) all += std::isnan(value) ? 0 : value;
  EXPECT_DOUBLE_EQ(all, 3);
}

TEST_F(Metrics, ACounterThatIsReportedSeldomHasARate) {
  report("c", 100, 10 * kSecond);
  const Nanos start = now();
  for (int i = 1; i <= 3; ++i) report("c", 100 + 300 * i, 300 * kSecond);
  const std::vector<double> rates = steps("c", MetricFunction::kRate, start, 10 * kSecond);
  EXPECT_THAT(rates, Each(DoubleNear(1, 1e-6)));
  EXPECT_EQ(rates.size(), 90U);
  EXPECT_NEAR(increase("c", start), 900, 1e-6);
  for (int i = 0; i < 3; ++i) report("other", i, 60 * kSecond);
  reopen();
  EXPECT_NEAR(increase("c", start, 3600 * kSecond), 900, 1e-3);
  EXPECT_NEAR(steps("c", MetricFunction::kRate, start, 3600 * kSecond).at(0), 1, 0.1) << "of the minutes of the file";
}

TEST_F(Metrics, WhatIsCountedInASilenceIsKept) {
  const Source worker{.worker = "w"};
  clock_.advance(60 * kSecond - now() % (60 * kSecond));
  const Nanos start = now();
  report("c", 100, 10 * kSecond, worker);
  report("c", 110, 10 * kSecond, worker);
  for (int i = 0; i < 11; ++i) report("other", i, 10 * kSecond);
  report("c", 210, 0, worker);
  EXPECT_NEAR(increase("c", start), 110, 1e-6);
  report("c", 220, 55 * kSecond, worker);
  for (int i = 0; i < 80; ++i) report("other", i, 60 * kSecond);
  EXPECT_NEAR(increase("c", start, 60 * kSecond), 120, 1e-3) << "what only minutes tell of";
  reopen();
  EXPECT_NEAR(increase("c", start, 60 * kSecond), 120, 1e-3);
}

TEST_F(Metrics, ASilenceBeforeAResetIsAGap) {
  const Nanos start = now();
  report("c", 100, 10 * kSecond);
  report("c", 150, 10 * kSecond);
  report("c", 30, 300 * kSecond);
  EXPECT_NEAR(increase("c", start), 80, 1e-6);
  const std::vector<double> rates = steps("c", MetricFunction::kRate, start, 10 * kSecond);
  EXPECT_TRUE(std::isnan(rates.at(10)));
  EXPECT_NEAR(rates.back(), 0.5, 1e-6);
  // A day later the program continues: that it counted all the time is not known.
  report("c", 90, 24 * 3600 * kSecond);
  EXPECT_NEAR(increase("c", now() - 60 * kSecond), 60, 1e-6);
  EXPECT_TRUE(std::isnan(steps("c", MetricFunction::kRate, now() - 600 * kSecond, 10 * kSecond).front()));
}

TEST_F(Metrics, ASeriesThatEndedKeepsItsLastMinute) {
  clock_.advance(60 * kSecond - now() % (60 * kSecond));
  const Nanos start = now();
  const Source worker{.worker = "w"};
  for (int i = 0; i < 5; ++i) report("c", 6 * i, 10 * kSecond, worker);
  for (int i = 0; i < 90; ++i) {
    report("other", i, 60 * kSecond);
    EXPECT_NEAR(increase("c", start, 60 * kSecond), 24, 1e-3) << i << " minutes later";
  }
  report("c", 34, 10 * kSecond, worker);
  EXPECT_NEAR(increase("c", start, 60 * kSecond), 34, 1e-3);
}

TEST_F(Metrics, GaugesHaveLastMeanAndMax) {
  const Nanos start = now() - now() % kSecond;
  tick({{.name = "g", .value = 1}});
  tick({{.name = "g", .value = 5}});
  tick({{.name = "g", .value = 2}});
  tick({{.name = "g", .value = 2}});
  const auto of = [&](MetricFunction function) {
    return points({.name = "g", .function = function, .time = {.from = start, .until = now()}, .step = 3600 * kSecond})
        .at(0);
  };
  EXPECT_EQ(of(MetricFunction::kLast), 2);
  EXPECT_EQ(of(MetricFunction::kMax), 5);
  EXPECT_NEAR(of(MetricFunction::kMean), (1 + 5 + 2) / 3.0, 1e-6);
}

TEST_F(Metrics, HistogramsHaveQuantilesOfAnyWindow) {
  const auto histogram = [](uint64_t a, uint64_t b, uint64_t c, double sum) {
    return std::vector<BuiltMetric>{
        {.name = "h", .unit = "s", .kind = Kind::kHistogram, .value = sum, .bounds = {1, 2}, .counts = {a, b, c}}};
  };
  tick(histogram(0, 0, 0, 0));
  tick(histogram(100, 0, 0, 50));
  tick(histogram(100, 100, 0, 200));
  const auto answer = store_->metric(kOperator, {.name = "h",
                                                 .function = MetricFunction::kP50,
                                                 .time = {.from = now() - 30 * kSecond, .until = now()},
                                                 .step = 10 * kSecond});
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->metric.kind, MetricKind::kHistogram);
  EXPECT_EQ(answer->metric.prometheus_name, "h_seconds");
  const std::vector<double>& p50 = answer->series.at(0).points;
  // Windows are aligned; the last one may be a part of the last ten seconds.
  EXPECT_NEAR(p50.back(), 1.5, 0.01);
  EXPECT_NEAR(last("h", MetricFunction::kMeanValue, 3600 * kSecond), 1.0, 1e-6);
}

TEST_F(Metrics, ExponentialHistogramsAndDeltasOfUsersPrograms) {
  const Source bob{.owner = "bob"};
  tick({{.name = "e", .kind = Kind::kExponential, .delta = true, .value = 3, .counts = {1, 1, 1}},
        {.name = "d", .kind = Kind::kCounter, .delta = true, .value = 7}},
       bob);
  tick({{.name = "e", .kind = Kind::kExponential, .delta = true, .value = 3, .counts = {1, 1, 1}},
        {.name = "d", .kind = Kind::kCounter, .delta = true, .value = 7}},
       bob);
  const auto answer = store_->metric(kBob, {.name = "d",
                                            .function = MetricFunction::kIncrease,
                                            .by = {"tenant", "service"},
                                            .time = {.from = now() - 10 * kSecond, .until = now()},
                                            .step = 3600 * kSecond});
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->series.at(0).labels.at("tenant"), "bob");
  EXPECT_EQ(answer->series.at(0).labels.at("service"), "tuft");
  EXPECT_NEAR(answer->series.at(0).points.at(0), 14, 1e-6);
  // Bucket i of scale 0 ends at 2^(i+1).
  EXPECT_NEAR(store_
                  ->metric(kBob, {.name = "e",
                                  .function = MetricFunction::kP99,
                                  .time = {.from = now() - 10 * kSecond, .until = now()},
                                  .step = 3600 * kSecond})
                  ->series.at(0)
                  .points.at(0),
              8, 0.2);
}

TEST_F(Metrics, AddsUpTheSeriesOfAGroupAndFilters) {
  tick({{.name = "g", .value = 1, .labels = {{"model", "a"}, {"state", "x"}}},
        {.name = "g", .value = 2, .labels = {{"model", "a"}, {"state", "y"}}}});
  tick({{.name = "g", .value = 4, .labels = {{"model", "b"}, {"state", "x"}}},
        {.name = "g", .value = 1, .labels = {{"model", "a"}, {"state", "x"}}},
        {.name = "g", .value = 2, .labels = {{"model", "a"}, {"state", "y"}}}},
       {});
  tick({{.name = "g", .value = 4, .labels = {{"model", "b"}, {"state", "x"}}}}, {.worker = "llama"});
  const TimeRange time{.from = now() - 25 * kSecond, .until = now()};
  const auto by_model = store_->metric(kOperator, {.name = "g", .by = {"model"}, .time = time, .step = 3600 * kSecond});
  ASSERT_EQ(by_model->series.size(), 2U);
  EXPECT_EQ(by_model->series[0].labels.at("model"), "a");
  EXPECT_DOUBLE_EQ(by_model->series[0].points.back(), 3);
  const auto longer = store_->metric(kOperator, {.name = "g", .by = {"model"}, .time = time, .step = kSecond});
  // Two series of 25 numbers, whose text can have 24 bytes each.
  EXPECT_GT(longer->memory_bytes, 2 * 25 * (8 + 24));
  EXPECT_GT(longer->memory_bytes, by_model->memory_bytes);
  const auto one = store_->metric(
      kOperator, {.name = "g", .where = {{"model", "a"}, {"state", "y"}}, .time = time, .step = 3600 * kSecond});
  EXPECT_DOUBLE_EQ(one->series.at(0).points.back(), 2);
  const std::vector<MetricInfo> infos = store_->metrics(kOperator);
  ASSERT_EQ(infos.size(), 1U);
  EXPECT_THAT(infos[0].labels.at("model"), ElementsAre("a", "b"));
  EXPECT_THAT(infos[0].labels.at("worker"), ElementsAre("llama"));
}

TEST_F(Metrics, RefusesFunctionsThatAMetricDoesNotHave) {
  tick({{.name = "g", .value = 1}, {.name = "c", .kind = Kind::kCounter, .value = 1}});
  const TimeRange time{.from = now() - 25 * kSecond, .until = now()};
  EXPECT_FALSE(store_->metric(kOperator, {.name = "g", .function = MetricFunction::kRate, .time = time}).ok());
  EXPECT_FALSE(store_->metric(kOperator, {.name = "c", .function = MetricFunction::kLast, .time = time}).ok());
  EXPECT_FALSE(store_->metric(kOperator, {.name = "c", .function = MetricFunction::kP99, .time = time}).ok());
  EXPECT_FALSE(store_->metric(kOperator, {.name = "nothing", .time = time}).ok());
  EXPECT_FALSE(store_->metric(kOperator, {.name = "g", .time = time, .step = 1}).ok());
}

TEST_F(Metrics, SaysOnceWhichPointsOfAUserFoundNoPlace) {
  const Source of_alice{.owner = "alice"};
  std::vector<BuiltMetric> metrics;
  for (int i = 0; i < 1002; ++i) metrics.push_back({.name = "m", .value = 1, .labels = {{"i", std::to_string(i)}}});
  tick(metrics, of_alice);
  tick({{.name = "m", .kind = Kind::kCounter}}, of_alice);
  tick({{.name = "m", .value = 1, .labels = {{"i", "1"}}}}, of_alice);

  EXPECT_EQ(store_->take_refused_points("bob").records, 0);
  const Rejections refused = store_->take_refused_points("alice");
  EXPECT_EQ(refused.records, 3);
  EXPECT_EQ(refused.reason,
            "1 of a metric whose kind or bounds differ from before, 2 of more than the 1000 series of a user");
  EXPECT_EQ(store_->take_refused_points("alice").records, 0);
}

TEST_F(Metrics, ShowsExemplars) {
  tick({{.name = "g", .value = 3, .exemplar_trace = 5, .exemplar_time = now()}});
  const auto found = store_->exemplars(kOperator, {.name = "g", .time = {.from = now() - 60 * kSecond}});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].trace_id, built_trace_id(5));
  EXPECT_EQ(found[0].value, 3);
}

}  // namespace
}  // namespace tuft::telemetry_store
