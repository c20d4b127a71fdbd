// Compares our encoding with opentelemetry-cpp's: the same record must give the same protobuf. This is the only file
// that includes the SDK.
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <opentelemetry/exporters/otlp/otlp_log_recordable.h>
#include <opentelemetry/exporters/otlp/otlp_metric_utils.h>
#include <opentelemetry/exporters/otlp/otlp_recordable.h>
#include <opentelemetry/proto/collector/logs/v1/logs_service.pb.h>
#include <opentelemetry/proto/collector/metrics/v1/metrics_service.pb.h>
#include <opentelemetry/proto/collector/trace/v1/trace_service.pb.h>
#include <opentelemetry/sdk/metrics/export/metric_producer.h>
#include <opentelemetry/sdk/resource/resource.h>

#include "base/id.h"
#include "telemetry/log.h"
#include "telemetry/log/log_line.h"
#include "telemetry/otlp/encode_metrics.h"
#include "telemetry/otlp/encode_records.h"
#include "telemetry/otlp/tests/recorded.h"
#include "telemetry/trace.h"

namespace tuft::telemetry::internal::otlp {
namespace {

namespace otel = opentelemetry;
namespace sdk = opentelemetry::sdk;
namespace collector = opentelemetry::proto::collector;
using google::protobuf::util::MessageDifferencer;

constexpr Nanos kOffset = 1'700'000'000 * kSecond;

otel::nostd::string_view view(std::string_view text) {
  return {text.data(), text.size()};
}

otel::common::SystemTimestamp timestamp(Nanos wall) {
  return otel::common::SystemTimestamp(std::chrono::nanoseconds(wall));
}

void put_big_endian(uint64_t value, uint8_t* out) {
  for (int i = 7; i >= 0; --i, value >>= 8) out[i] = static_cast<uint8_t>(value);
}

otel::trace::SpanId span_id(uint64_t id) {
  uint8_t bytes[otel::trace::SpanId::kSize];
  put_big_endian(id, bytes);
  return otel::trace::SpanId(bytes);
}

otel::trace::TraceId trace_id(const SpanContext& context) {
  uint8_t bytes[otel::trace::TraceId::kSize];
  put_big_endian(context.trace_id_high, bytes);
  put_big_endian(context.trace_id_low, bytes + 8);
  return otel::trace::TraceId(bytes);
}

otel::trace::SpanContext span_context(const SpanContext& context) {
  return {trace_id(context), span_id(context.span_id), otel::trace::TraceFlags(context.flags), false};
}

otel::trace::SpanKind span_kind(SpanKind kind) {
  switch (kind) {
    case SpanKind::kInternal:
      return otel::trace::SpanKind::kInternal;
    case SpanKind::kServer:
      return otel::trace::SpanKind::kServer;
    case SpanKind::kClient:
      return otel::trace::SpanKind::kClient;
    case SpanKind::kProducer:
      return otel::trace::SpanKind::kProducer;
    case SpanKind::kConsumer:
      return otel::trace::SpanKind::kConsumer;
  }
  return otel::trace::SpanKind::kInternal;
}

// The SDK does not check its strings.
template <typename Put>
void put_value(const AttributeSlot& slot, const char* strings, Put&& put) {
  switch (slot.kind) {
    case AttributeValue::Kind::kBool:
      put(view(slot.key.view()), slot.as_int != 0);
      break;
    case AttributeValue::Kind::kInt:
      put(view(slot.key.view()), slot.as_int);
      break;
    case AttributeValue::Kind::kDouble:
      put(view(slot.key.view()), slot.as_double);
      break;
    case AttributeValue::Kind::kString: {
      const std::string text = to_utf8({strings + slot.as_string.offset, slot.as_string.size});
      put(view(slot.key.view()), view(text));
    }
  }
}

class EventAttributes final : public otel::common::KeyValueIterable {
 public:
  EventAttributes(const AttributeSlot* slots, size_t count, const char* strings)
      : slots_(slots), count_(count), strings_(strings) {}
  bool ForEachKeyValue(otel::nostd::function_ref<bool(otel::nostd::string_view, otel::common::AttributeValue)> callback)
      const noexcept override {
    for (size_t i = 0; i < count_; ++i)
      put_value(slots_[i], strings_, [&](otel::nostd::string_view key, auto value) { callback(key, value); });
    return true;
  }
  size_t size() const noexcept override { return count_; }

 private:
  const AttributeSlot* slots_;
  size_t count_;
  const char* strings_;
};

template <typename T>
const T* take(const std::byte*& at, size_t count) {
  const T* items = reinterpret_cast<const T*>(at);
  at += count * sizeof(T);
  return items;
}

otel::proto::trace::v1::Span sdk_span(const Record& record) {
  const std::byte* at = record.data() + sizeof(RecordHeader);
  const SpanHead& head = *take<SpanHead>(at, 1);
  const auto* attributes = take<AttributeSlot>(at, head.attribute_count);
  const auto* events = take<EventSlot>(at, head.event_count);
  const auto* event_attributes = take<AttributeSlot>(at, head.event_attribute_count);
  const auto* more_links = take<SpanContext>(at, head.more_link_count);
  const char* strings = take<char>(at, head.string_bytes);
  const auto text = [strings](StringRef ref) { return to_utf8({strings + ref.offset, ref.size}); };

  otel::exporter::otlp::OtlpRecordable out;
  out.SetIdentity(span_context(head.context),
                  head.parent_span_id != 0 ? span_id(head.parent_span_id) : otel::trace::SpanId());
  out.SetTraceFlags(otel::trace::TraceFlags(head.context.flags));
  out.SetName(view(head.dynamic_name.size != 0 ? text(head.dynamic_name) : std::string(head.name.view())));
  out.SetSpanKind(span_kind(head.kind));
  out.SetStartTime(timestamp(head.start + kOffset));
  out.SetDuration(std::chrono::nanoseconds(head.end - head.start));
  for (uint32_t i = 0; i < head.attribute_count; ++i)
    put_value(attributes[i], strings, [&](otel::nostd::string_view key, auto value) { out.SetAttribute(key, value); });
  for (uint32_t i = 0; i < head.event_count; ++i)
    out.AddEvent(view(events[i].name.view()), timestamp(events[i].time + kOffset),
                 EventAttributes(event_attributes + events[i].first_attribute, events[i].attribute_count, strings));
  if (head.link.valid()) out.AddLink(span_context(head.link), EventAttributes(nullptr, 0, strings));
  for (uint32_t i = 0; i < head.more_link_count; ++i)
    out.AddLink(span_context(more_links[i]), EventAttributes(nullptr, 0, strings));
  if (head.error) out.SetStatus(otel::trace::StatusCode::kError, view(text(head.error_message)));
  out.span().set_dropped_attributes_count(head.dropped_attributes);
  out.span().set_dropped_events_count(head.dropped_events);
  // Version 1.19 leaves them out.
  int link = 0;
  if (head.link.valid()) out.span().mutable_links(link++)->set_flags(head.link.flags);
  for (uint32_t i = 0; i < head.more_link_count; ++i) out.span().mutable_links(link++)->set_flags(more_links[i].flags);
  out.span().set_dropped_links_count(head.dropped_links);
  return out.span();
}

otel::proto::logs::v1::LogRecord sdk_log(const Record& record) {
  const std::byte* at = record.data() + sizeof(RecordHeader);
  const LogHead& head = *take<LogHead>(at, 1);
  const auto* attributes = take<AttributeSlot>(at, head.attribute_count);
  const char* strings = take<char>(at, head.string_bytes);

  otel::exporter::otlp::OtlpLogRecordable out;
  out.SetTimestamp(timestamp(head.time));
  out.SetObservedTimestamp(timestamp(head.time));
  out.SetSeverity(static_cast<otel::logs::Severity>(5 + 4 * static_cast<int>(head.severity)));
  const std::string message = to_utf8({strings + head.message.offset, head.message.size});
  out.SetBody(view(message));
  out.SetAttribute("event.name", view(head.event.view()));
  out.SetAttribute("code.file.path", head.file);
  out.SetAttribute("code.line.number", static_cast<int64_t>(head.line));
  out.SetAttribute("code.function.name", head.function);
  for (uint32_t i = 0; i < head.attribute_count; ++i)
    put_value(attributes[i], strings, [&](otel::nostd::string_view key, auto value) { out.SetAttribute(key, value); });
  if (head.context.valid()) {
    out.SetTraceId(trace_id(head.context));
    out.SetSpanId(span_id(head.context.span_id));
    out.SetTraceFlags(otel::trace::TraceFlags(head.context.flags));
  }
  out.log_record().set_event_name(std::string(head.event.view()));
  return out.log_record();
}

// Makes spans of every form that the recorder can produce, at random but with a fixed seed.
Recorded many_records() {
  return record([] {
    const Tracer tracers[] = {get_tracer("tuft.one"), get_tracer("tuft.two"), get_tracer("")};
    constexpr SpanKind kKinds[] = {SpanKind::kInternal, SpanKind::kServer, SpanKind::kClient, SpanKind::kProducer,
                                   SpanKind::kConsumer};
    std::srand(7);                                                    // NOLINT(cert-msc51-cpp)
    const auto dice = [](int sides) { return std::rand() % sides; };  // NOLINT(concurrency-mt-unsafe)
    for (int i = 0; i < 300; ++i) {
      Span parent = tracers[dice(3)].start_span("parent", {.kind = kKinds[dice(5)]});
      const ContextScope scope(parent.context());
      Span span = tracers[dice(3)].start_span("child", {.link = dice(2) != 0 ? parent.context() : SpanContext{}});
      for (int link = dice(40); link > 0; --link) span.add_link(parent.context());
      for (int a = dice(40); a > 0; --a) {
        const Name key = Name::intern("key." + std::to_string(a));
        switch (dice(4)) {
          case 0:
            span.set_attribute(key, dice(2) == 0);
            break;
          case 1:
            span.set_attribute(key, dice(2) == 0 ? int64_t{-dice(1000)} : int64_t{1} << dice(63));
            break;
          case 2:
            span.set_attribute(key, dice(1000) / 8.0);
            break;
          default:
            span.set_attribute(key, std::string(static_cast<size_t>(dice(200)), static_cast<char>(dice(256))));
        }
      }
      for (int e = dice(10); e > 0; --e) span.add_event("event", {{"n", e}, {"text", "x"}});
      if (dice(3) == 0) span.record_error(not_found(std::string(static_cast<size_t>(dice(300)), 'm'), "reason"));
      if (dice(5) == 0) span.set_dynamic_name("child of " + std::to_string(i));
      log_debug("event.exported", "without a line");
      log(dice(2) == 0 ? Severity::kWarning : Severity::kError, "event.one",
          std::string(static_cast<size_t>(dice(500)), 'b'), {{"a", i}, {"b", 0.5}, {"c", true}, {"d", "d\xff"}});
    }
    log_info("event.without.span", "no ids");
  });
}

TEST(Oracle, SpansThenTheSameProtobufAsTheSdk) {
  const Recorded recorded = many_records();
  ASSERT_EQ(recorded.spans.size(), 600u);
  for (const Record& span : recorded.spans) {
    RecordEncoder encoder("");
    encoder.add_span(span.data(), kOffset);
    EXPECT_EQ(encoder.count(), 1u);
    collector::trace::v1::ExportTraceServiceRequest request;
    ASSERT_TRUE(request.ParseFromString(encoder.take()));
    std::string difference;
    MessageDifferencer differencer;
    differencer.ReportDifferencesToString(&difference);
    EXPECT_TRUE(differencer.Compare(sdk_span(span), request.resource_spans(0).scope_spans(0).spans(0))) << difference;
  }
}

TEST(Oracle, LogsThenTheSameProtobufAsTheSdk) {
  ::testing::internal::CaptureStderr();
  const Recorded recorded = many_records();
  ::testing::internal::GetCapturedStderr();
  ASSERT_EQ(recorded.logs.size(), 601u);
  for (const Record& log : recorded.logs) {
    RecordEncoder encoder("");
    encoder.add_log(log.data());
    collector::logs::v1::ExportLogsServiceRequest request;
    ASSERT_TRUE(request.ParseFromString(encoder.take()));
    std::string difference;
    MessageDifferencer differencer;
    differencer.ReportDifferencesToString(&difference);
    EXPECT_TRUE(differencer.Compare(sdk_log(log), request.resource_logs(0).scope_logs(0).log_records(0))) << difference;
  }
}

sdk::metrics::MetricData sdk_metric(const MetricSnapshot& metric, Nanos start, Nanos end) {
  using Type = sdk::metrics::InstrumentType;
  const InstrumentKind kind = metric.info.kind;
  const bool whole = kind == InstrumentKind::kCounter || kind == InstrumentKind::kUpDownCounter;
  const Type type = kind == InstrumentKind::kCounter         ? Type::kCounter
                    : kind == InstrumentKind::kUpDownCounter ? Type::kUpDownCounter
                    : kind == InstrumentKind::kHistogram     ? Type::kHistogram
                                                             : Type::kObservableGauge;
  sdk::metrics::MetricData data;
  data.instrument_descriptor = {
      metric.info.name, metric.info.description, metric.info.unit, type,
      whole ? sdk::metrics::InstrumentValueType::kLong : sdk::metrics::InstrumentValueType::kDouble};
  data.aggregation_temporality = sdk::metrics::AggregationTemporality::kCumulative;
  data.start_ts = timestamp(start);
  data.end_ts = timestamp(end);
  for (const MetricPoint& point : metric.points) {
    sdk::metrics::PointDataAttributes out;
    if (kind == InstrumentKind::kHistogram) {
      sdk::metrics::HistogramPointData histogram;
      histogram.boundaries_ = metric.info.bounds;
      histogram.counts_ = point.counts;
      histogram.count_ = point.count;
      histogram.sum_ = point.sum;
      histogram.min_ = point.min;
      histogram.max_ = point.max;
      histogram.record_min_max_ = point.count > 0;
      out.point_data = histogram;
    } else if (whole) {
      sdk::metrics::SumPointData sum;
      sum.value_ = point.value;
      sum.is_monotonic_ = kind == InstrumentKind::kCounter;
      out.point_data = sum;
    } else {
      sdk::metrics::LastValuePointData last;
      last.value_ = point.number;
      last.is_lastvalue_valid_ = true;
      last.sample_ts_ = timestamp(end);
      out.point_data = last;
    }
    for (const auto& [key, value] : point.labels) out.attributes[key] = value;
    data.point_data_attr_.push_back(std::move(out));
  }
  return data;
}

std::vector<MetricSnapshot> snapshot_of_every_kind() {
  const auto info = [](std::string name, InstrumentKind kind) {
    return InstrumentInfo{.name = std::move(name),
                          .kind = kind,
                          .unit = "s",
                          .description = "what it is",
                          .labels = {"k"},
                          .bounds = {0.5, 1, 10},
                          .scope = "tuft"};
  };
  return {
      {info("a.counter", InstrumentKind::kCounter), {{.labels = {{"k", "a"}, {"l", "b"}}, .value = 7}, {.value = 0}}},
      {info("b.updown", InstrumentKind::kUpDownCounter), {{.labels = {{"k", "a"}}, .value = -3}}},
      {info("c.gauge", InstrumentKind::kGauge), {{.labels = {{"k", "a"}}, .number = 0.25}}},
      {info("d.histogram", InstrumentKind::kHistogram),
       {{.labels = {{"k", "a"}}, .counts = {1, 0, 2, 1}, .count = 4, .sum = 33.5, .min = 0.1, .max = 20},
        {.labels = {{"k", "never"}}, .counts = {0, 0, 0, 0}}}}};
}

TEST(Oracle, MetricsThenTheSameProtobufAsTheSdk) {
  const Nanos start = kOffset;
  const Nanos end = kOffset + 5 * kSecond;
  const std::vector<MetricSnapshot> metrics = snapshot_of_every_kind();
  collector::metrics::v1::ExportMetricsServiceRequest ours;
  ASSERT_TRUE(ours.ParseFromString(encode_metrics(metrics, "", start, end)));
  ASSERT_EQ(ours.resource_metrics(0).scope_metrics(0).metrics_size(), 4);
  for (int i = 0; i < 4; ++i) {
    otel::proto::metrics::v1::Metric expected;
    otel::exporter::otlp::OtlpMetricUtils::PopulateInstrumentInfoMetrics(
        sdk_metric(metrics[static_cast<size_t>(i)], start, end), &expected);
    otel::proto::metrics::v1::Metric got = ours.resource_metrics(0).scope_metrics(0).metrics(i);
    // The SDK keeps labels in a hash map.
    std::string difference;
    MessageDifferencer differencer;
    differencer.set_repeated_field_comparison(MessageDifferencer::AS_SET);
    differencer.ReportDifferencesToString(&difference);
    EXPECT_TRUE(differencer.Compare(expected, got)) << difference;
  }
}

}  // namespace
}  // namespace tuft::telemetry::internal::otlp
