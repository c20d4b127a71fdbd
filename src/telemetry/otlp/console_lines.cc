#include "telemetry/otlp/console_lines.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>

#include <opentelemetry/proto/collector/logs/v1/logs_service.pb.h>
#include <opentelemetry/proto/collector/metrics/v1/metrics_service.pb.h>
#include <opentelemetry/proto/collector/trace/v1/trace_service.pb.h>

#include "base/text.h"
#include "telemetry/otlp/json.h"

namespace tuft::telemetry::internal::otlp {
namespace {

namespace proto = opentelemetry::proto;
using KeyValues = google::protobuf::RepeatedPtrField<proto::common::v1::KeyValue>;

constexpr std::string_view kControl = "\\x";

void append_time(std::string& out, uint64_t wall_nanos) {
  const auto seconds = static_cast<std::time_t>(wall_nanos / 1'000'000'000);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 40> text{};
  const size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  out.append(text.data(), size);
  const int fraction = std::snprintf(text.data(), text.size(), ".%06lluZ",
                                     static_cast<unsigned long long>(wall_nanos % 1'000'000'000 / 1000));
  out.append(text.data(), static_cast<size_t>(fraction));
}

void append_duration(std::string& out, uint64_t nanos) {
  std::array<char, 40> text{};
  const char* const format = nanos < 1'000'000 ? "%.1fus" : nanos < 1'000'000'000 ? "%.3fms" : "%.3fs";
  const double unit = nanos < 1'000'000 ? 1e3 : nanos < 1'000'000'000 ? 1e6 : 1e9;
  out.append(text.data(),
             static_cast<size_t>(std::snprintf(text.data(), text.size(), format, static_cast<double>(nanos) / unit)));
}

void append_id(std::string& out, std::string_view name, std::string_view id) {
  if (id.empty()) return;
  out += name;
  append_hex(out, id);
}

bool is_plain(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c > 0x20 && c != 0x7f && c != '"' && c != '=' && c != '\\';
  });
}

void append_text(std::string& out, std::string_view text) {
  if (is_plain(text)) {
    out += text;
  } else {
    append_quoted(out, text, kControl);
  }
}

void append_value(std::string& out, const proto::common::v1::AnyValue& value) {
  switch (value.value_case()) {
    case proto::common::v1::AnyValue::kStringValue:
      return append_text(out, value.string_value());
    case proto::common::v1::AnyValue::kBoolValue:
      out += value.bool_value() ? "true" : "false";
      return;
    case proto::common::v1::AnyValue::kIntValue:
      return append_number(out, value.int_value());
    case proto::common::v1::AnyValue::kDoubleValue:
      return append_number(out, value.double_value());
    default:
      out += '?';
  }
}

void append_attributes(std::string& out, const KeyValues& attributes) {
  for (const auto& attribute : attributes) {
    out += ' ';
    append_text(out, attribute.key());
    out += '=';
    append_value(out, attribute.value());
  }
}

void append_span(std::string& out, const proto::trace::v1::Span& span, const std::string& scope) {
  out += "SPAN   ";
  append_time(out, span.start_time_unix_nano());
  out += ' ';
  append_duration(out, span.end_time_unix_nano() - span.start_time_unix_nano());
  out += ' ';
  append_text(out, span.name());
  append_id(out, " trace=", span.trace_id());
  append_id(out, " span=", span.span_id());
  append_id(out, " parent=", span.parent_span_id());
  out += " scope=";
  append_text(out, scope);
  if (span.status().code() == proto::trace::v1::Status::STATUS_CODE_ERROR) {
    out += " ERROR=";
    append_quoted(out, span.status().message(), kControl);
  }
  append_attributes(out, span.attributes());
  for (const auto& event : span.events()) {
    out += " event=";
    append_text(out, event.name());
    out += '(';
    const size_t start = out.size();
    append_attributes(out, event.attributes());
    if (out.size() != start) out.erase(start, 1);
    out += ')';
  }
  for (const auto& link : span.links()) append_id(out, " link=", link.trace_id() + link.span_id());
  out += '\n';
}

void append_log(std::string& out, const proto::logs::v1::LogRecord& log) {
  out += "LOG    ";
  append_time(out, log.time_unix_nano());
  out += ' ';
  out += log.severity_text();
  out += ' ';
  append_text(out, log.event_name());
  out += ' ';
  append_quoted(out, log.body().string_value(), kControl);
  append_id(out, " trace=", log.trace_id());
  append_id(out, " span=", log.span_id());
  for (const auto& attribute : log.attributes()) {
    // Already shown, or not useful in a line of text.
    if (attribute.key() == "event.name" || attribute.key().starts_with("code.")) continue;
    out += ' ';
    append_text(out, attribute.key());
    out += '=';
    append_value(out, attribute.value());
  }
  out += '\n';
}

template <typename Point>
void append_point_head(std::string& out, const proto::metrics::v1::Metric& metric, const Point& point) {
  out += "METRIC ";
  append_time(out, point.time_unix_nano());
  out += ' ';
  out += metric.name();
  if (point.attributes_size() > 0) {
    out += '{';
    for (const auto& attribute : point.attributes()) {
      if (out.back() != '{') out += ',';
      out += attribute.key();
      out += '=';
      append_quoted(out, attribute.value().string_value(), kControl);
    }
    out += '}';
  }
  out += ' ';
}

void append_unit(std::string& out, const proto::metrics::v1::Metric& metric) {
  if (!metric.unit().empty()) out += ' ' + metric.unit();
  out += '\n';
}

template <typename Points>
void append_numbers(std::string& out, const proto::metrics::v1::Metric& metric, const Points& points) {
  for (const auto& point : points) {
    append_point_head(out, metric, point);
    if (point.value_case() == proto::metrics::v1::NumberDataPoint::kAsInt) {
      append_number(out, point.as_int());
    } else {
      append_number(out, point.as_double());
    }
    append_unit(out, metric);
  }
}

template <typename Points>
void append_histograms(std::string& out, const proto::metrics::v1::Metric& metric, const Points& points) {
  for (const auto& point : points) {
    append_point_head(out, metric, point);
    out += "count=";
    append_number(out, point.count());
    out += " sum=";
    append_number(out, point.sum());
    if (point.has_min()) {
      out += " min=";
      append_number(out, point.min());
      out += " max=";
      append_number(out, point.max());
    }
    append_unit(out, metric);
  }
}

void append_metric(std::string& out, const proto::metrics::v1::Metric& metric) {
  if (metric.has_sum()) append_numbers(out, metric, metric.sum().data_points());
  if (metric.has_gauge()) append_numbers(out, metric, metric.gauge().data_points());
  append_histograms(out, metric, metric.histogram().data_points());
  append_histograms(out, metric, metric.exponential_histogram().data_points());
}

}  // namespace

std::string console_lines(const proto::collector::trace::v1::ExportTraceServiceRequest& request) {
  std::string out;
  for (const auto& resource : request.resource_spans()) {
    for (const auto& scope : resource.scope_spans()) {
      for (const auto& span : scope.spans()) append_span(out, span, scope.scope().name());
    }
  }
  return out;
}

std::string console_lines(const proto::collector::logs::v1::ExportLogsServiceRequest& request) {
  std::string out;
  for (const auto& resource : request.resource_logs()) {
    for (const auto& scope : resource.scope_logs()) {
      for (const auto& log : scope.log_records()) append_log(out, log);
    }
  }
  return out;
}

std::string console_lines(const proto::collector::metrics::v1::ExportMetricsServiceRequest& request) {
  std::string out;
  for (const auto& resource : request.resource_metrics()) {
    for (const auto& scope : resource.scope_metrics()) {
      for (const auto& metric : scope.metrics()) append_metric(out, metric);
    }
  }
  return out;
}

}  // namespace tuft::telemetry::internal::otlp
