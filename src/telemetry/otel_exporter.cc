// The only file that includes the OpenTelemetry SDK: it costs ten seconds to compile.
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <sstream>
#include <unistd.h>

#include <opentelemetry/exporters/ostream/log_record_exporter_factory.h>
#include <opentelemetry/exporters/ostream/metric_exporter_factory.h>
#include <opentelemetry/exporters/ostream/span_exporter_factory.h>
#include <opentelemetry/exporters/otlp/otlp_grpc_exporter_factory.h>
#include <opentelemetry/exporters/otlp/otlp_grpc_exporter_options.h>
#include <opentelemetry/exporters/otlp/otlp_grpc_log_record_exporter_factory.h>
#include <opentelemetry/exporters/otlp/otlp_grpc_log_record_exporter_options.h>
#include <opentelemetry/exporters/otlp/otlp_grpc_metric_exporter_factory.h>
#include <opentelemetry/exporters/otlp/otlp_grpc_metric_exporter_options.h>
#include <opentelemetry/exporters/otlp/otlp_log_recordable.h>
#include <opentelemetry/exporters/otlp/otlp_recordable.h>
#include <opentelemetry/sdk/common/global_log_handler.h>
#include <opentelemetry/sdk/instrumentationscope/instrumentation_scope.h>
#include <opentelemetry/sdk/logs/exporter.h>
#include <opentelemetry/sdk/logs/recordable.h>
#include <opentelemetry/sdk/metrics/export/metric_producer.h>
#include <opentelemetry/sdk/metrics/push_metric_exporter.h>
#include <opentelemetry/sdk/resource/resource.h>
#include <opentelemetry/sdk/trace/exporter.h>
#include <opentelemetry/sdk/trace/recordable.h>

#include "base/id.h"
#include "base/mutex.h"
#include "telemetry/exporter.h"
#include "telemetry/log_line.h"
#include "telemetry/recorder.h"

namespace tuft::telemetry::internal {
namespace {

namespace otel = opentelemetry;
namespace sdk = opentelemetry::sdk;
namespace otlp = opentelemetry::exporter::otlp;
using Scope = sdk::instrumentationscope::InstrumentationScope;

otel::nostd::string_view view(std::string_view text) {
  return {text.data(), text.size()};
}

std::chrono::nanoseconds nanos(Nanos value) {
  return std::chrono::nanoseconds(value);
}

otel::common::SystemTimestamp timestamp(Nanos wall) {
  return otel::common::SystemTimestamp(nanos(wall));
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

otel::logs::Severity log_severity(Severity severity) {
  switch (severity) {
    case Severity::kDebug:
      return otel::logs::Severity::kDebug;
    case Severity::kInfo:
      return otel::logs::Severity::kInfo;
    case Severity::kWarning:
      return otel::logs::Severity::kWarn;
    case Severity::kError:
      return otel::logs::Severity::kError;
  }
  return otel::logs::Severity::kInfo;
}

// The parts of a record, read one after the other.
class Reader {
 public:
  explicit Reader(const std::byte* record) : at_(record + sizeof(RecordHeader)) {}

  template <typename T>
  const T* take(size_t count) {
    const T* items = reinterpret_cast<const T*>(at_);
    at_ += count * sizeof(T);
    return items;
  }

 private:
  const std::byte* at_;
};

// Strings of a record as the protobuf accepts them. One that is not UTF-8 would make the collector refuse the batch.
class Text {
 public:
  explicit Text(const char* strings) : strings_(strings) {}

  otel::nostd::string_view operator()(StringRef ref) { return clean({strings_ + ref.offset, ref.size}); }
  otel::nostd::string_view clean(std::string_view text) {
    if (is_utf8(text)) return view(text);
    repaired_ = to_utf8(text);
    return view(repaired_);
  }

 private:
  const char* strings_;
  std::string repaired_;  // lives until the next call
};

template <typename Put>
void put_value(const AttributeSlot& slot, Text& text, Put&& put) {
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
    case AttributeValue::Kind::kString:
      put(view(slot.key.view()), text(slot.as_string));
      break;
  }
}

class EventAttributes final : public otel::common::KeyValueIterable {
 public:
  EventAttributes(const AttributeSlot* slots, size_t count, const char* strings)
      : slots_(slots), count_(count), strings_(strings) {}

  bool ForEachKeyValue(otel::nostd::function_ref<bool(otel::nostd::string_view, otel::common::AttributeValue)> callback)
      const noexcept override {
    Text text(strings_);
    bool go_on = true;
    for (size_t i = 0; i < count_ && go_on; ++i)
      put_value(slots_[i], text, [&](otel::nostd::string_view key, auto value) { go_on = callback(key, value); });
    return go_on;
  }
  size_t size() const noexcept override { return count_; }

 private:
  const AttributeSlot* slots_;
  size_t count_;
  const char* strings_;
};

// Scopes by name; recordables keep pointers to them, so they stay.
class Scopes {
 public:
  const Scope& get(std::string_view name) {
    auto found = scopes_.find(name);
    if (found == scopes_.end()) found = scopes_.emplace(name, Scope::Create(view(name))).first;
    return *found->second;
  }

 private:
  std::map<std::string, otel::nostd::unique_ptr<Scope>, std::less<>> scopes_;
};

void fill_span(sdk::trace::Recordable& out, const std::byte* record, Nanos offset,
               const sdk::resource::Resource& resource, Scopes& scopes) {
  Reader reader(record);
  const SpanHead& head = *reader.take<SpanHead>(1);
  const AttributeSlot* attributes = reader.take<AttributeSlot>(head.attribute_count);
  const EventSlot* events = reader.take<EventSlot>(head.event_count);
  const AttributeSlot* event_attributes = reader.take<AttributeSlot>(head.event_attribute_count);
  const char* strings = reader.take<char>(head.string_bytes);
  Text text(strings);

  out.SetResource(resource);
  out.SetInstrumentationScope(scopes.get(head.scope.view()));
  out.SetIdentity(span_context(head.context),
                  head.parent_span_id != 0 ? span_id(head.parent_span_id) : otel::trace::SpanId());
  out.SetTraceFlags(otel::trace::TraceFlags(head.context.flags));
  out.SetName(head.dynamic_name.size != 0 ? text(head.dynamic_name) : view(head.name.view()));
  out.SetSpanKind(span_kind(head.kind));
  out.SetStartTime(timestamp(head.start + offset));
  out.SetDuration(nanos(head.end - head.start));
  for (uint32_t i = 0; i < head.attribute_count; ++i)
    put_value(attributes[i], text, [&](otel::nostd::string_view key, auto value) { out.SetAttribute(key, value); });
  for (uint32_t i = 0; i < head.event_count; ++i) {
    const EventSlot& event = events[i];
    out.AddEvent(view(event.name.view()), timestamp(event.time + offset),
                 EventAttributes(event_attributes + event.first_attribute, event.attribute_count, strings));
  }
  if (head.link.valid()) out.AddLink(span_context(head.link), EventAttributes(nullptr, 0, strings));
  if (head.error) out.SetStatus(otel::trace::StatusCode::kError, text(head.error_message));
  if (auto* span = dynamic_cast<otlp::OtlpRecordable*>(&out)) {
    span->span().set_dropped_attributes_count(head.dropped_attributes);
    span->span().set_dropped_events_count(head.dropped_events);
  }
}

void fill_log(sdk::logs::Recordable& out, const std::byte* record, const sdk::resource::Resource& resource,
              const Scope& scope) {
  Reader reader(record);
  const LogHead& head = *reader.take<LogHead>(1);
  const AttributeSlot* attributes = reader.take<AttributeSlot>(head.attribute_count);
  Text text(reader.take<char>(head.string_bytes));

  out.SetResource(resource);
  out.SetInstrumentationScope(scope);
  out.SetTimestamp(timestamp(head.time));
  out.SetObservedTimestamp(timestamp(head.time));
  out.SetSeverity(log_severity(head.severity));
  out.SetBody(text(head.message));
  // As an attribute too: collectors older than OTLP 1.5 drop the field.
  out.SetAttribute("event.name", view(head.event.view()));
  out.SetAttribute("code.file.path", head.file);
  out.SetAttribute("code.line.number", static_cast<int64_t>(head.line));
  out.SetAttribute("code.function.name", head.function);
  for (uint32_t i = 0; i < head.attribute_count; ++i)
    put_value(attributes[i], text, [&](otel::nostd::string_view key, auto value) { out.SetAttribute(key, value); });
  if (head.context.valid()) {
    out.SetTraceId(trace_id(head.context));
    out.SetSpanId(span_id(head.context.span_id));
    out.SetTraceFlags(otel::trace::TraceFlags(head.context.flags));
  }
  if (auto* log = dynamic_cast<otlp::OtlpLogRecordable*>(&out))
    log->log_record().set_event_name(std::string(head.event.view()));
}

template <typename Take>
void for_each_record(const RecordBatch& batch, Take&& take) {
  for (size_t at = 0; at < batch.bytes.size();) {
    take(batch.bytes.data() + at);
    at += reinterpret_cast<const RecordHeader*>(batch.bytes.data() + at)->size;
  }
}

sdk::metrics::InstrumentType instrument_type(InstrumentKind kind) {
  switch (kind) {
    case InstrumentKind::kCounter:
      return sdk::metrics::InstrumentType::kCounter;
    case InstrumentKind::kUpDownCounter:
      return sdk::metrics::InstrumentType::kUpDownCounter;
    case InstrumentKind::kHistogram:
      return sdk::metrics::InstrumentType::kHistogram;
    case InstrumentKind::kGauge:
    case InstrumentKind::kObservableGauge:
      return sdk::metrics::InstrumentType::kObservableGauge;
    case InstrumentKind::kObservableCounter:
      return sdk::metrics::InstrumentType::kObservableCounter;
  }
  return sdk::metrics::InstrumentType::kCounter;
}

sdk::metrics::PointType make_point(const InstrumentInfo& info, const MetricPoint& point, Nanos now_wall) {
  switch (info.kind) {
    case InstrumentKind::kCounter:
    case InstrumentKind::kUpDownCounter: {
      sdk::metrics::SumPointData sum;
      sum.value_ = point.value;
      sum.is_monotonic_ = info.kind == InstrumentKind::kCounter;
      return sum;
    }
    case InstrumentKind::kObservableCounter: {
      sdk::metrics::SumPointData sum;
      sum.value_ = point.number;
      sum.is_monotonic_ = true;
      return sum;
    }
    case InstrumentKind::kGauge:
    case InstrumentKind::kObservableGauge: {
      sdk::metrics::LastValuePointData last;
      last.value_ = point.number;
      last.is_lastvalue_valid_ = true;
      last.sample_ts_ = timestamp(now_wall);
      return last;
    }
    case InstrumentKind::kHistogram:
      break;
  }
  sdk::metrics::HistogramPointData histogram;
  histogram.boundaries_ = info.bounds;
  histogram.counts_ = point.counts;
  histogram.count_ = point.count;
  histogram.sum_ = point.sum;
  histogram.record_min_max_ = point.count > 0 && std::isfinite(point.min) && std::isfinite(point.max);
  histogram.min_ = histogram.record_min_max_ ? point.min : 0.0;
  histogram.max_ = histogram.record_min_max_ ? point.max : 0.0;
  return histogram;
}

sdk::metrics::MetricData make_metric(const MetricSnapshot& metric, Nanos start_wall, Nanos now_wall) {
  sdk::metrics::MetricData data;
  const bool whole = metric.info.kind == InstrumentKind::kCounter || metric.info.kind == InstrumentKind::kUpDownCounter;
  data.instrument_descriptor = {
      metric.info.name, metric.info.description, metric.info.unit, instrument_type(metric.info.kind),
      whole ? sdk::metrics::InstrumentValueType::kLong : sdk::metrics::InstrumentValueType::kDouble};
  data.aggregation_temporality = sdk::metrics::AggregationTemporality::kCumulative;
  data.start_ts = timestamp(start_wall);
  data.end_ts = timestamp(now_wall);
  for (const MetricPoint& point : metric.points) {
    sdk::metrics::PointDataAttributes out{{}, make_point(metric.info, point, now_wall)};
    for (const auto& [key, value] : point.labels) out.attributes[to_utf8(key)] = to_utf8(value);
    data.point_data_attr_.push_back(std::move(out));
  }
  return data;
}

class OtelExporter final : public Exporter {
 public:
  // A console exporter prints into `console`; each export then goes to stdout in one piece, so that the three signals
  // do not mix within a line.
  struct Console {
    std::ostringstream spans;
    std::ostringstream logs;
    std::ostringstream metrics;
  };

  OtelExporter(const sdk::resource::Resource& resource, std::unique_ptr<Console> console,
               std::unique_ptr<sdk::trace::SpanExporter> spans, std::unique_ptr<sdk::logs::LogRecordExporter> logs,
               std::unique_ptr<sdk::metrics::PushMetricExporter> metrics)
      : resource_(resource),
        console_(std::move(console)),
        spans_(std::move(spans)),
        logs_(std::move(logs)),
        metrics_(std::move(metrics)) {}

  bool export_spans(const RecordBatch& batch) override {
    std::vector<std::unique_ptr<sdk::trace::Recordable>> recordables;
    recordables.reserve(batch.count);
    for_each_record(batch, [&](const std::byte* record) {
      recordables.push_back(spans_->MakeRecordable());
      fill_span(*recordables.back(), record, batch.wall_offset, resource_, span_scopes_);
    });
    const auto result = spans_->Export({recordables.data(), recordables.size()});
    if (console_) print(console_->spans);
    return result == sdk::common::ExportResult::kSuccess;
  }

  bool export_logs(const RecordBatch& batch) override {
    std::vector<std::unique_ptr<sdk::logs::Recordable>> recordables;
    recordables.reserve(batch.count);
    for_each_record(batch, [&](const std::byte* record) {
      recordables.push_back(logs_->MakeRecordable());
      fill_log(*recordables.back(), record, resource_, log_scopes_.get("tuft"));
    });
    const auto result = logs_->Export({recordables.data(), recordables.size()});
    if (console_) print(console_->logs);
    return result == sdk::common::ExportResult::kSuccess;
  }

  bool export_metrics(const std::vector<MetricSnapshot>& metrics, Nanos start_wall, Nanos now_wall) override {
    std::map<std::string, sdk::metrics::ScopeMetrics> by_scope;
    for (const MetricSnapshot& metric : metrics) {
      sdk::metrics::ScopeMetrics& scope = by_scope[metric.info.scope];
      scope.scope_ = &meter_scopes_.get(metric.info.scope);
      scope.metric_data_.push_back(make_metric(metric, start_wall, now_wall));
    }
    sdk::metrics::ResourceMetrics data;
    data.resource_ = &resource_;
    for (auto& [name, scope] : by_scope) data.scope_metric_data_.push_back(std::move(scope));
    const auto result = metrics_->Export(data);
    if (console_) print(console_->metrics);
    return result == sdk::common::ExportResult::kSuccess;
  }

 private:
  static void print(std::ostringstream& text) {
    const std::string out = text.str();
    std::fwrite(out.data(), 1, out.size(), stdout);
    std::fflush(stdout);
    text.str({});
  }

  const sdk::resource::Resource resource_;
  const std::unique_ptr<Console> console_;
  const std::unique_ptr<sdk::trace::SpanExporter> spans_;
  const std::unique_ptr<sdk::logs::LogRecordExporter> logs_;
  const std::unique_ptr<sdk::metrics::PushMetricExporter> metrics_;
  Scopes span_scopes_;   // of the traces thread
  Scopes log_scopes_;    // of the logs thread
  Scopes meter_scopes_;  // of the metrics thread
};

struct SdkMessages {
  Mutex mutex;
  std::string last TUFT_GUARDED_BY(mutex);
};

SdkMessages& sdk_messages() {
  static SdkMessages& messages = *new SdkMessages;
  return messages;
}

// opentelemetry-cpp writes a line to stderr for every failed export, and more; ours says it once, with a count.
class SdkLogHandler final : public sdk::common::internal_log::LogHandler {
 public:
  void Handle(sdk::common::internal_log::LogLevel level, const char*, int, const char* message,
              const sdk::common::AttributeMap&) noexcept override {
    if (level > sdk::common::internal_log::LogLevel::Warning || message == nullptr) return;
    try {
      SdkMessages& messages = sdk_messages();
      MutexLock lock(messages.mutex);
      messages.last = message;
    } catch (const std::exception&) {
      // Out of memory: the message is lost, the process goes on.
    }
  }
};

sdk::resource::Resource make_resource(const Settings& settings) {
  sdk::resource::ResourceAttributes attributes;
  attributes.SetAttribute("service.instance.id", view(random_uuid()));
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) == 0) attributes.SetAttribute("host.name", host.data());
  attributes.SetAttribute("process.pid", static_cast<int64_t>(::getpid()));
  attributes.SetAttribute("service.version", TUFT_VERSION);
  attributes.SetAttribute("service.name", view(to_utf8(settings.service_name)));
  for (const auto& [key, value] : settings.resource_attributes) attributes[to_utf8(key)] = to_utf8(value);
  return sdk::resource::Resource::Create(attributes);
}

template <typename Options>
Options otlp_options(const Settings& settings, const SignalSettings& signal) {
  Options options;
  (void)settings;
  if (!signal.endpoint.empty()) {
    options.endpoint = (signal.tls ? "https://" : "http://") + signal.endpoint;
    options.use_ssl_credentials = signal.tls;
  }
  if (signal.export_timeout > 0)
    options.timeout = std::chrono::duration_cast<std::chrono::system_clock::duration>(nanos(signal.export_timeout));
  return options;
}

std::unique_ptr<Exporter> make_console_exporter(const Settings& settings) {
  auto console = std::make_unique<OtelExporter::Console>();
  auto spans = otel::exporter::trace::OStreamSpanExporterFactory::Create(console->spans);
  auto logs = otel::exporter::logs::OStreamLogRecordExporterFactory::Create(console->logs);
  auto metrics = otel::exporter::metrics::OStreamMetricExporterFactory::Create(console->metrics);
  return std::make_unique<OtelExporter>(make_resource(settings), std::move(console), std::move(spans), std::move(logs),
                                        std::move(metrics));
}

std::unique_ptr<Exporter> make_otlp_exporter(const Settings& settings) {
  return std::make_unique<OtelExporter>(
      make_resource(settings), nullptr,
      otlp::OtlpGrpcExporterFactory::Create(otlp_options<otlp::OtlpGrpcExporterOptions>(settings, settings.traces)),
      otlp::OtlpGrpcLogRecordExporterFactory::Create(
          otlp_options<otlp::OtlpGrpcLogRecordExporterOptions>(settings, settings.logs)),
      otlp::OtlpGrpcMetricExporterFactory::Create(
          otlp_options<otlp::OtlpGrpcMetricExporterOptions>(settings, settings.metrics)));
}

}  // namespace

Result<std::unique_ptr<Exporter>> make_exporter(const Settings& settings) {
  using sdk::common::internal_log::GlobalLogHandler;
  using sdk::common::internal_log::LogHandler;
  try {
    GlobalLogHandler::SetLogHandler(otel::nostd::shared_ptr<LogHandler>(new SdkLogHandler));
    return settings.traces.protocol == Protocol::kConsole ? make_console_exporter(settings) : make_otlp_exporter(settings);
  } catch (const std::exception& problem) {
    return internal_error(std::string("the OpenTelemetry exporter could not be made: ") + problem.what());
  }
}

std::string last_sdk_message() {
  SdkMessages& messages = sdk_messages();
  MutexLock lock(messages.mutex);
  return messages.last;
}

}  // namespace tuft::telemetry::internal
