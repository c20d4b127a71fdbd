#include <gtest/gtest.h>
#include <opentelemetry/proto/collector/metrics/v1/metrics_service.pb.h>
#include <opentelemetry/proto/collector/trace/v1/trace_service.pb.h>

#include "telemetry/host/machine.h"
#include "telemetry/log/log_line.h"
#include "telemetry/otlp/encode_metrics.h"
#include "telemetry/otlp/encode_records.h"
#include "telemetry/otlp/resource.h"
#include "telemetry/otlp/response.h"
#include "telemetry/otlp/tests/recorded.h"
#include "telemetry/otlp/wire.h"
#include "telemetry/trace.h"

namespace tuft::telemetry::internal::otlp {
namespace {

namespace collector = opentelemetry::proto::collector;

TEST(WireWriter, MessagesOfEveryLengthThenReadBack) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{120}, size_t{130}, size_t{16'380}, size_t{20'000}}) {
    WireWriter writer;
    const size_t outer = writer.open(1);
    const size_t inner = writer.open(17);
    writer.text(3, std::string(size, 'x'));
    writer.close(inner);
    writer.varint(4, UINT64_MAX);
    writer.close(outer);
    writer.number(5, 0.5);

    WireReader reader(writer.view());
    ASSERT_TRUE(reader.next());
    EXPECT_EQ(reader.field(), 1u);
    WireReader middle(reader.bytes());
    ASSERT_TRUE(middle.next());
    EXPECT_EQ(middle.field(), 17u);
    WireReader innermost(middle.bytes());
    ASSERT_TRUE(innermost.next());
    EXPECT_EQ(innermost.bytes(), std::string(size, 'x'));
    EXPECT_FALSE(innermost.next());
    ASSERT_TRUE(middle.next());
    EXPECT_EQ(middle.number(), UINT64_MAX);
    EXPECT_FALSE(middle.next());
    ASSERT_TRUE(reader.next());
    EXPECT_EQ(std::bit_cast<double>(reader.number()), 0.5);
    EXPECT_FALSE(reader.next());
  }
}

TEST(WireReader, TornOrForeignInputThenItEnds) {
  WireWriter writer;
  writer.text(1, "hello");
  const std::string whole(writer.view());
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(WireReader(std::string_view(whole).substr(0, size)).next());
  EXPECT_FALSE(WireReader(std::string(20, '\xff')).next());
  // A group, a wire type that is no longer in use.
  EXPECT_FALSE(WireReader("\x0b\x0c").next());
}

TEST(Response, PartialSuccessThenCountAndMessage) {
  collector::trace::v1::ExportTraceServiceResponse response;
  EXPECT_EQ(read_partial_success(response.SerializeAsString()).rejected, 0);
  response.mutable_partial_success()->set_rejected_spans(3);
  response.mutable_partial_success()->set_error_message("too old\n\xff");
  const PartialSuccess partial = read_partial_success(response.SerializeAsString());
  EXPECT_EQ(partial.rejected, 3);
  EXPECT_EQ(partial.message, "too old \xef\xbf\xbd");
}

TEST(RecordEncoder, RecordsOfSeveralScopesThenGroupedUnderOneResource) {
  const Recorded recorded = record([] {
    for (int i = 0; i < 3; ++i) {
      get_tracer("tuft.one").start_span("a");
      get_tracer("tuft.two").start_span("b");
    }
  });
  Settings settings;
  settings.service_name = "mine\xff";
  settings.resource_attributes = {{"team", "blue"}, {"service.version", "overridden"}};
  RecordEncoder encoder(encode_resource(settings));
  for (const Record& span : recorded.spans) encoder.add_span(span.data(), 0);
  EXPECT_EQ(encoder.count(), 6u);
  collector::trace::v1::ExportTraceServiceRequest request;
  ASSERT_TRUE(request.ParseFromString(encoder.take()));
  EXPECT_EQ(encoder.count(), 0u);
  EXPECT_EQ(encoder.bytes(), 0u);

  ASSERT_EQ(request.resource_spans_size(), 1);
  const auto& resource = request.resource_spans(0);
  std::map<std::string, std::string> attributes;
  for (const auto& attribute : resource.resource().attributes()) {
    EXPECT_FALSE(attributes.contains(attribute.key())) << attribute.key() << " twice";
    attributes[attribute.key()] = attribute.value().string_value();
  }
  EXPECT_EQ(attributes["service.name"], "mine\xef\xbf\xbd");
  EXPECT_EQ(attributes["service.version"], "overridden");
  EXPECT_EQ(attributes["team"], "blue");
  EXPECT_EQ(attributes["telemetry.sdk.language"], "cpp");
  EXPECT_EQ(attributes["telemetry.sdk.name"], "tuft");
  EXPECT_EQ(attributes["service.instance.id"].size(), 36u);
  EXPECT_TRUE(attributes.contains("host.name"));
  EXPECT_TRUE(attributes["host.arch"] == "amd64" || attributes["host.arch"] == "arm64") << attributes["host.arch"];
  EXPECT_EQ(attributes["host.cpu.model.name"], read_cpu_name());
  EXPECT_TRUE(attributes.contains("process.pid"));
  ASSERT_EQ(resource.scope_spans_size(), 2);
  for (const auto& scope : resource.scope_spans()) {
    EXPECT_EQ(scope.spans_size(), 3);
    for (const auto& span : scope.spans()) EXPECT_EQ(span.name(), scope.scope().name() == "tuft.one" ? "a" : "b");
  }
  // The encoder is reused without its former contents.
  encoder.add_span(recorded.spans.front().data(), 0);
  ASSERT_TRUE(request.ParseFromString(encoder.take()));
  ASSERT_EQ(request.resource_spans(0).scope_spans_size(), 1);
  EXPECT_EQ(request.resource_spans(0).scope_spans(0).spans_size(), 1);
}

TEST(RecordEncoder, TracestateFromOutsideThenOnTheSpanAndTheLink) {
  g_propagation.trace_context = true;
  const Recorded recorded = record([] {
    const SpanContext outside = from_headers(
        {.traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", .tracestate = "a=1,b=2"},
        Peer::kOutside);
    get_tracer("tuft.one").start_span("a", {.parent = outside, .link = outside});
  });
  RecordEncoder encoder("");
  encoder.add_span(recorded.spans.at(0).data(), 0);
  collector::trace::v1::ExportTraceServiceRequest request;
  ASSERT_TRUE(request.ParseFromString(encoder.take()));
  const auto& span = request.resource_spans(0).scope_spans(0).spans(0);
  EXPECT_EQ(span.trace_state(), "a=1,b=2");
  EXPECT_EQ(span.links(0).trace_state(), "a=1,b=2");
}

InstrumentInfo info(std::string name, InstrumentKind kind, std::vector<double> bounds = {}) {
  InstrumentInfo out;
  out.name = std::move(name);
  out.kind = kind;
  out.bounds = std::move(bounds);
  out.scope = "tuft";
  return out;
}

std::vector<MetricSnapshot> snapshot(int64_t count, int64_t up_down, double total, std::vector<uint64_t> buckets) {
  MetricPoint histogram{.counts = std::move(buckets)};
  for (const uint64_t bucket : histogram.counts) histogram.count += bucket;
  histogram.sum = static_cast<double>(histogram.count) * 2;
  histogram.max = 2;
  return {{info("counter", InstrumentKind::kCounter), {{.labels = {{"k", "a"}}, .value = count}}},
          {info("updown", InstrumentKind::kUpDownCounter), {{.value = up_down}}},
          {info("total", InstrumentKind::kObservableCounter), {{.number = total}}},
          {info("histogram", InstrumentKind::kHistogram, {1}), {histogram}}};
}

opentelemetry::proto::metrics::v1::Metric metric(const std::vector<MetricsRequest>& requests, const std::string& name) {
  for (const MetricsRequest& request : requests) {
    collector::metrics::v1::ExportMetricsServiceRequest parsed;
    EXPECT_TRUE(parsed.ParseFromString(request.bytes));
    for (const auto& scope : parsed.resource_metrics(0).scope_metrics()) {
      for (const auto& one : scope.metrics()) {
        if (one.name() == name) return one;
      }
    }
  }
  ADD_FAILURE() << "no metric " << name;
  return {};
}

constexpr auto kDelta = opentelemetry::proto::metrics::v1::AGGREGATION_TEMPORALITY_DELTA;
constexpr auto kCumulative = opentelemetry::proto::metrics::v1::AGGREGATION_TEMPORALITY_CUMULATIVE;

TEST(MetricsEncoder, DeltaThenOnlyWhatIsNewSinceTheLastDelivery) {
  MetricsEncoder encoder("", Temporality::kDelta, 100);
  auto metrics = snapshot(5, 4, 1.5, {1, 1});
  auto first = encoder.encode(metrics, 200);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].points, 4u);
  EXPECT_EQ(metric(first, "counter").sum().aggregation_temporality(), kDelta);
  EXPECT_TRUE(metric(first, "counter").sum().is_monotonic());
  EXPECT_EQ(metric(first, "counter").sum().data_points(0).as_int(), 5);
  EXPECT_EQ(metric(first, "counter").sum().data_points(0).start_time_unix_nano(), 100u);

  // The previous request did not arrive, so the next one includes its values.
  metrics = snapshot(8, 3, 2.5, {1, 4});
  auto second = encoder.encode(metrics, 300);
  EXPECT_EQ(metric(second, "counter").sum().data_points(0).as_int(), 8);
  encoder.delivered(second[0], metrics, 300);

  metrics = snapshot(9, 2, 4, {2, 4});
  auto third = encoder.encode(metrics, 400);
  EXPECT_EQ(metric(third, "counter").sum().data_points(0).as_int(), 1);
  EXPECT_EQ(metric(third, "counter").sum().data_points(0).start_time_unix_nano(), 300u);
  EXPECT_EQ(metric(third, "updown").sum().aggregation_temporality(), kCumulative);
  EXPECT_EQ(metric(third, "updown").sum().data_points(0).as_int(), 2);
  EXPECT_EQ(metric(third, "total").sum().data_points(0).as_double(), 1.5);
  const auto histogram = metric(third, "histogram").histogram();
  EXPECT_EQ(histogram.aggregation_temporality(), kDelta);
  EXPECT_EQ(histogram.data_points(0).count(), 1u);
  EXPECT_EQ(histogram.data_points(0).bucket_counts(0), 1u);
  EXPECT_EQ(histogram.data_points(0).bucket_counts(1), 0u);
  EXPECT_EQ(histogram.data_points(0).sum(), 2);
  EXPECT_FALSE(histogram.data_points(0).has_max()) << "not known of an interval";
}

TEST(MetricsEncoder, LabelsOfTheProcessThenOnEveryPoint) {
  for (const Temporality temporality : {Temporality::kCumulative, Temporality::kDelta}) {
    MetricsEncoder encoder("", temporality, 100, {.labels = {{"worker", "org/m"}}});
    const auto requests = encoder.encode(snapshot(5, 4, 1.5, {1, 1}), 200);
    const auto worker_of = [](const auto& point) {
      const auto& last = point.attributes(point.attributes_size() - 1);
      return last.key() + "=" + last.value().string_value();
    };
    EXPECT_EQ(worker_of(metric(requests, "counter").sum().data_points(0)), "worker=org/m");
    EXPECT_EQ(worker_of(metric(requests, "updown").sum().data_points(0)), "worker=org/m");
    EXPECT_EQ(worker_of(metric(requests, "total").sum().data_points(0)), "worker=org/m");
    EXPECT_EQ(worker_of(metric(requests, "histogram").histogram().data_points(0)), "worker=org/m");
  }
}

TEST(MetricsEncoder, SeriesThatBeganAnewThenItsWholeValue) {
  MetricsEncoder encoder("", Temporality::kDelta, 100);
  auto metrics = snapshot(5, 0, 5, {1, 1});
  encoder.delivered(encoder.encode(metrics, 200)[0], metrics, 200);
  metrics = snapshot(2, 0, 5, {1, 1});
  EXPECT_EQ(metric(encoder.encode(metrics, 300), "counter").sum().data_points(0).as_int(), 2);
}

TEST(MetricsEncoder, LowMemoryThenObservedTotalsStayCumulative) {
  MetricsEncoder encoder("", Temporality::kLowMemory, 100);
  const auto requests = encoder.encode(snapshot(5, 4, 1.5, {1, 1}), 200);
  EXPECT_EQ(metric(requests, "counter").sum().aggregation_temporality(), kDelta);
  EXPECT_EQ(metric(requests, "histogram").histogram().aggregation_temporality(), kDelta);
  EXPECT_EQ(metric(requests, "total").sum().aggregation_temporality(), kCumulative);
  EXPECT_EQ(metric(requests, "updown").sum().aggregation_temporality(), kCumulative);
}

TEST(MetricsEncoder, MoreThanACollectorTakesThenSeveralRequests) {
  std::vector<MetricSnapshot> metrics;
  for (int i = 0; i < 100; ++i) {
    metrics.push_back({info("metric." + std::to_string(i), InstrumentKind::kGauge), {}});
    for (int p = 0; p < 256; ++p)
      metrics.back().points.push_back({.labels = {{"label", std::string(200, 'v') + std::to_string(p)}}});
  }
  MetricsEncoder encoder("", Temporality::kCumulative, 100);
  const auto requests = encoder.encode(metrics, 200);
  EXPECT_GT(requests.size(), 2u);
  size_t points = 0;
  for (const MetricsRequest& request : requests) {
    EXPECT_LT(request.bytes.size(), size_t{4} << 20);
    points += request.points;
  }
  EXPECT_EQ(points, 100u * 256u);
}

}  // namespace
}  // namespace tuft::telemetry::internal::otlp
