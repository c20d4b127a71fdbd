// Tests which measurements become exemplars, and how they leave.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "telemetry/exposition.h"
#include "telemetry/metric/metric_store.h"
#include "telemetry/otlp/encode_metrics.h"
#include "telemetry/record/recording.h"
#include "telemetry/tests/collector_fixture.h"
#include "telemetry/trace.h"

namespace tuft::telemetry {
namespace {

using internal::Exemplar;
using internal::Exemplars;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr SpanContext kSampled{0x0102030405060708, 0x090a0b0c0d0e0f10, 0x1112131415161718, 1};
constexpr SpanContext kNotSampled{1, 2, 3, 0};

class WithFilter {
 public:
  explicit WithFilter(ExemplarFilter filter) { internal::g_exemplar_filter = filter; }
  ~WithFilter() { internal::g_exemplar_filter = ExemplarFilter::kTraceBased; }
  WithFilter(const WithFilter&) = delete;
  WithFilter& operator=(const WithFilter&) = delete;
};

void offer_in(Exemplars& exemplars, const SpanContext& context, size_t bucket, double value) {
  const ContextScope scope(context);
  exemplars.offer(bucket, value);
}

TEST(Exemplars, TraceBasedThenOnlySampledTraces) {
  Exemplars exemplars(3);
  exemplars.offer(0, 1);
  offer_in(exemplars, kNotSampled, 1, 2);
  offer_in(exemplars, kSampled, 2, 3);
  const auto read = exemplars.read();
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].bucket, 2u);
  EXPECT_EQ(read[0].value, 3);
  EXPECT_EQ(read[0].trace_id_high, kSampled.trace_id_high);
  EXPECT_EQ(read[0].trace_id_low, kSampled.trace_id_low);
  EXPECT_EQ(read[0].span_id, kSampled.span_id);
  EXPECT_GT(read[0].wall, 1'600'000'000 * kSecond);
}

TEST(Exemplars, AlwaysOnThenAlsoWithoutATrace) {
  const WithFilter filter(ExemplarFilter::kAlwaysOn);
  Exemplars exemplars(2);
  exemplars.offer(0, 1);
  offer_in(exemplars, kNotSampled, 1, 2);
  const auto read = exemplars.read();
  ASSERT_EQ(read.size(), 2u);
  EXPECT_FALSE(read[0].in_trace());
  EXPECT_EQ(read[1].span_id, 3u);
}

TEST(Exemplars, AlwaysOffThenNone) {
  const WithFilter filter(ExemplarFilter::kAlwaysOff);
  Exemplars exemplars(1);
  offer_in(exemplars, kSampled, 0, 1);
  EXPECT_TRUE(exemplars.read().empty());
}

TEST(Exemplars, ManyInARoundThenTheFirstAndInTheNextRoundAnotherOne) {
  Exemplars exemplars(1);
  for (const double value : {1.0, 2.0, 3.0}) offer_in(exemplars, kSampled, 0, value);
  ASSERT_EQ(exemplars.read().size(), 1u);
  EXPECT_EQ(exemplars.read()[0].value, 1);
  internal::end_exemplar_round();
  EXPECT_EQ(exemplars.read()[0].value, 1) << "it stays until there is a newer one";
  for (const double value : {4.0, 5.0}) offer_in(exemplars, kSampled, 0, value);
  EXPECT_EQ(exemplars.read()[0].value, 4);
}

// Each writer's value and ids belong together, so a mixture of two writers would be seen.
TEST(Exemplars, SeveralThreadsThenNeverAMixture) {
  Exemplars exemplars(1);
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (uint64_t number = 1; number <= 3; ++number) {
    writers.emplace_back([&, number] {
      const ContextScope scope({number, number, number, 1});
      while (!stop) {
        exemplars.offer(0, static_cast<double>(number));
        internal::end_exemplar_round();
      }
    });
  }
  size_t seen = 0;
  while (seen < 20'000) {
    for (const Exemplar& one : exemplars.read()) {
      ++seen;
      const auto number = static_cast<uint64_t>(one.value);
      if (one.trace_id_high != number || one.trace_id_low != number || one.span_id != number) {
        ADD_FAILURE() << one.value << " in the trace of another";
        seen = 20'000;
      }
    }
  }
  stop = true;
  for (std::thread& writer : writers) writer.join();
}

Histogram shown() {
  return Histogram({.name = "test.exemplars", .unit = "s", .description = "what", .bounds = {1, 2}});
}

TEST(ExemplarExport, SlowBucketThenItsTraceOverOtlp) {
  WithCollector collector;
  const Histogram histogram = shown();
  SpanContext slow;
  {
    const Span span = get_tracer("tuft.test").start_span("slow");
    slow = span.context();
    const ContextScope scope(slow);
    histogram.record(7);
  }
  histogram.record(1.5);
  ASSERT_TRUE(collector.flush());
  const auto metric = collector.receiver.metric("test.exemplars");
  ASSERT_TRUE(metric && !metric->points.empty());
  const auto& exemplars = metric->points[0].exemplars;
  ASSERT_EQ(exemplars.size(), 1u);
  EXPECT_EQ(exemplars[0].value, 7);
  EXPECT_EQ(exemplars[0].trace_id, slow.trace_id_hex());
  EXPECT_EQ(exemplars[0].span_id, slow.span_id_hex());
  EXPECT_EQ(collector.span("slow")->trace_id, exemplars[0].trace_id);
}

TEST(ExemplarExport, SwitchedOffThenNone) {
  TelemetryConfig config;
  config.exemplar_filter = ExemplarFilter::kAlwaysOff;
  WithCollector collector(config);
  const Histogram histogram({.name = "test.exemplars.off", .unit = "s", .description = "what", .bounds = {1}});
  const ContextScope scope(kSampled);
  histogram.record(7);
  EXPECT_THAT(render_metrics(ExpositionFormat::kOpenMetrics, {}), HasSubstr("test_exemplars_off_seconds_count 1\n"));
  EXPECT_THAT(render_metrics(ExpositionFormat::kOpenMetrics, {}),
              HasSubstr("test_exemplars_off_seconds_bucket{le=\"+Inf\"} 1\n"));
}

internal::MetricSnapshot with_exemplar(Nanos wall) {
  internal::MetricSnapshot metric;
  metric.info.name = "test.w";
  metric.info.kind = InstrumentKind::kHistogram;
  metric.info.unit = "s";
  metric.info.bounds = {1};
  metric.points.push_back(
      {.counts = {0, 1},
       .count = 1,
       .sum = 4,
       .exemplars = {{1, 4, wall, kSampled.trace_id_high, kSampled.trace_id_low, kSampled.span_id}}});
  return metric;
}

TEST(ExemplarExport, OpenMetricsThenOnTheBucketOfTheWorkerAndNowhereElse) {
  const std::string snapshot =
      internal::otlp::encode_metrics({with_exemplar(1'700'000'000 * kSecond + 7 * kMillisecond)}, {}, 0, kSecond);
  const std::string open = render_metrics(ExpositionFormat::kOpenMetrics, {{"m", snapshot}});
  EXPECT_THAT(open, HasSubstr("test_w_seconds_bucket{worker=\"m\",le=\"1.0\"} 0\n"
                              "test_w_seconds_bucket{worker=\"m\",le=\"+Inf\"} 1 # "
                              "{trace_id=\"0102030405060708090a0b0c0d0e0f10\",span_id=\"1112131415161718\"} "
                              "4 1700000000.007\n"
                              "test_w_seconds_count{worker=\"m\"} 1\n"
                              "test_w_seconds_sum{worker=\"m\"} 4\n"));
  EXPECT_THAT(render_metrics(ExpositionFormat::kPrometheusText, {{"m", snapshot}}), Not(HasSubstr(" # {")));
}

TEST(ExemplarExport, DeltaThenOnlyExemplarsOfTheInterval) {
  internal::otlp::MetricsEncoder encoder({}, Temporality::kDelta, 0);
  const std::vector<internal::MetricSnapshot> metrics = {with_exemplar(10 * kSecond)};
  const std::string id("\x11\x12\x13\x14\x15\x16\x17\x18");
  const auto first = encoder.encode(metrics, 20 * kSecond);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_THAT(first[0].bytes, HasSubstr(id));
  encoder.delivered(first[0], metrics, 20 * kSecond);
  EXPECT_THAT(encoder.encode(metrics, 30 * kSecond)[0].bytes, Not(HasSubstr(id)));
}

}  // namespace
}  // namespace tuft::telemetry
