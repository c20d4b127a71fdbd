#include "telemetry/exposition.h"

#include <cmath>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "telemetry/metric/metric_store.h"
#include "telemetry/otlp/encode_metrics.h"
#include "telemetry/tests/collector_fixture.h"

namespace tuft::telemetry {
namespace {

using internal::MetricPoint;
using internal::MetricSnapshot;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kText = ExpositionFormat::kPrometheusText;
constexpr auto kOpen = ExpositionFormat::kOpenMetrics;

MetricSnapshot gauge(const std::string& name, double value, internal::LabelStrings labels = {}) {
  MetricSnapshot metric;
  metric.info.name = name;
  metric.info.kind = InstrumentKind::kGauge;
  metric.info.description = "what";
  metric.points.push_back({.labels = std::move(labels), .number = value});
  return metric;
}

std::string encoded(const std::vector<MetricSnapshot>& metrics) {
  return internal::otlp::encode_metrics(metrics, {}, 0, kSecond);
}

// Returns them as another process would send them.
std::string rendered(ExpositionFormat format, const std::vector<MetricSnapshot>& metrics) {
  return render_metrics(format, {{"m", encoded(metrics)}});
}

// Returns the lines of one family.
std::string family(const std::string& text, const std::string& name) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    if (line.starts_with(name) || line.find(" " + name) != std::string::npos) out += line + "\n";
    at = end + 1;
  }
  return out;
}

TEST(Exposition, CounterThenTotalInBothFormats) {
  WithCollector collector;
  const Counter counter({.name = "test.shown", .unit = "By", .description = "Bytes\nof \"it\" \\", .labels = {"k.x"}});
  counter.add(3, {{"k.x", "v"}});
  EXPECT_EQ(family(render_metrics(kText, {}), "test_shown"),
            "# HELP test_shown_bytes_total Bytes\\nof \"it\" \\\\\n"
            "# TYPE test_shown_bytes_total counter\n"
            "test_shown_bytes_total{k_x=\"v\"} 3\n");
  EXPECT_EQ(family(render_metrics(kOpen, {}), "test_shown"),
            "# HELP test_shown_bytes Bytes\\nof \\\"it\\\" \\\\\n"
            "# TYPE test_shown_bytes counter\n"
            "# UNIT test_shown_bytes bytes\n"
            "test_shown_bytes_total{k_x=\"v\"} 3\n");
}

TEST(Exposition, HistogramThenCumulativeInclusiveBuckets) {
  WithCollector collector;
  const Histogram histogram({.name = "test.shown.time", .unit = "s", .description = "what", .bounds = {0.25, 1, 2}});
  for (const double value : {0.25, 1.0, 1.5, 7.0}) histogram.record(value);
  const std::string text = render_metrics(kText, {});
  EXPECT_THAT(text, HasSubstr("test_shown_time_seconds_bucket{le=\"0.25\"} 1\n"
                              "test_shown_time_seconds_bucket{le=\"1\"} 2\n"
                              "test_shown_time_seconds_bucket{le=\"2\"} 3\n"
                              "test_shown_time_seconds_bucket{le=\"+Inf\"} 4\n"
                              "test_shown_time_seconds_count 4\n"
                              "test_shown_time_seconds_sum 9.75\n"));
  EXPECT_THAT(render_metrics(kOpen, {}), HasSubstr("{le=\"1.0\"} 2\n"));
}

TEST(Exposition, LabelValuesThenEscaped) {
  const std::string text = rendered(kText, {gauge("test.escapes", 1, {{"a", "\"\\\n\xff"}})});
  EXPECT_THAT(text, HasSubstr("test_escapes{a=\"\\\"\\\\\\n\xef\xbf\xbd\",worker=\"m\"} 1\n"));
}

TEST(Exposition, SpecialValuesThenAsTheFormatSpellsThem) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const std::string text =
      rendered(kText, {gauge("test.a", kInfinite), gauge("test.b", -kInfinite), gauge("test.c", std::nan("")),
                       gauge("test.d", 1e-300), gauge("test.e", 0.1)});
  for (const char* line : {"test_a{worker=\"m\"} +Inf\n", "test_b{worker=\"m\"} -Inf\n", "test_c{worker=\"m\"} NaN\n",
                           "test_d{worker=\"m\"} 1e-300\n", "test_e{worker=\"m\"} 0.1\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST(Exposition, ResourceThenTargetInfo) {
  TelemetryConfig config;
  config.service_name = "tuft-test";
  config.resource_attributes = {{"team.name", "a\"b"}, {"site.a", "1"}, {"site_a", "2"}};
  WithCollector collector(config);
  EXPECT_THAT(render_metrics(kText, {}), HasSubstr("# TYPE target_info gauge\ntarget_info{host_arch="));
  const std::string text = render_metrics(kOpen, {});
  EXPECT_THAT(text, HasSubstr("# TYPE target info\ntarget_info{host_arch="));
  EXPECT_THAT(text, HasSubstr("service_name=\"tuft-test\""));
  EXPECT_THAT(text, HasSubstr("team_name=\"a\\\"b\""));
  EXPECT_THAT(text, HasSubstr("site_a=\"1;2\"")) << "two keys that become one label";
}

TEST(Exposition, WorkersThenOneFamilyWithALabelEach) {
  WithCollector collector;
  const Counter counter({.name = "test.everywhere", .unit = "", .description = "once"});
  counter.add(5);
  const std::string snapshot = metrics_snapshot();
  const std::string text = render_metrics(kOpen, {{"a", snapshot}, {"b", snapshot}, {"b", snapshot}});
  EXPECT_EQ(family(text, "test_everywhere"),
            "# HELP test_everywhere once\n"
            "# TYPE test_everywhere counter\n"
            "test_everywhere_total 5\n"
            "test_everywhere_total{worker=\"a\"} 5\n"
            "test_everywhere_total{worker=\"b\"} 5\n");
  EXPECT_TRUE(text.ends_with("# EOF\n"));
}

TEST(Exposition, WorkerReportsAnotherKindThenItsMetricIsLeftOut) {
  WithCollector collector;
  const Counter counter({.name = "test.kinds", .unit = "", .description = "what"});
  counter.add(5);
  const std::string text = rendered(kText, {gauge("test.kinds", 7), gauge("test.beside", 8)});
  EXPECT_THAT(text, HasSubstr("test_kinds_total 5\n"));
  EXPECT_THAT(text, HasSubstr("test_beside{worker=\"m\"} 8\n"));
  EXPECT_THAT(text, Not(HasSubstr("test_kinds{")));
}

TEST(Exposition, SnapshotThatCannotBeReadThenCountedAndTheRestIsThere) {
  WithCollector collector;
  const std::string good = encoded({gauge("test.good", 1)});
  render_metrics(kText, {{"bad", "\xff\xff\xff"}});
  const std::string text = render_metrics(kText, {{"good", good}});
  EXPECT_THAT(text, HasSubstr("test_good{worker=\"good\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("tuft_telemetry_dropped_total{reason=\"unreadable_snapshot\",signal=\"metrics\"} 1\n"));
}

TEST(Exposition, GaugeClearedThenItsSeriesIsGone) {
  WithCollector collector;
  const Gauge gauge({.name = "test.cleared", .unit = "", .description = "what", .labels = {"k"}});
  const BoundGauge bound = gauge.with({{"k", "v"}});
  bound.set(9);
  EXPECT_THAT(render_metrics(kText, {}), HasSubstr("test_cleared{k=\"v\"} 9\n"));
  bound.set(2);
  EXPECT_THAT(render_metrics(kText, {}), HasSubstr("test_cleared{k=\"v\"} 2\n"));
  bound.clear();
  EXPECT_THAT(render_metrics(kText, {}), Not(HasSubstr("test_cleared")));
}

TEST(Exposition, AcceptHeaderThenTheFormatItPrefers) {
  EXPECT_EQ(negotiate_format(""), kText);
  EXPECT_EQ(negotiate_format("*/*"), kText);
  EXPECT_EQ(negotiate_format("text/html, nonsense;;=, q=7"), kText);
  EXPECT_EQ(negotiate_format("application/openmetrics-text; version=\"1.0.0\"; charset=utf-8"), kOpen);
  EXPECT_EQ(negotiate_format("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;"
                             "q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"),
            kOpen);
  EXPECT_EQ(negotiate_format("application/openmetrics-text;q=0.2,text/plain;q=0.9"), kText);
  EXPECT_EQ(negotiate_format("application/openmetrics-text;q=0"), kText);
  EXPECT_EQ(negotiate_format("application/openmetrics-text;version=2.0.0"), kText);
  EXPECT_EQ(content_type(kText), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(content_type(kOpen), "application/openmetrics-text; version=1.0.0; charset=utf-8");
}

}  // namespace
}  // namespace tuft::telemetry
