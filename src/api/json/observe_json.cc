// Telemetry: traces, logs and metrics. The rest is in observe_things_json.cc.
#include "api/json/observe_json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "api/json/observe_text.h"

namespace tuft::api {
namespace {

using telemetry_store::Attribute;
using telemetry_store::Span;

constexpr double kMicrosOfSecond = 1e6;
constexpr std::string_view kKinds[] = {"internal", "internal", "server", "client", "producer", "consumer"};

void write_attributes(JsonWriter& json, const std::vector<Attribute>& attributes) {
  json.key("attributes").begin_object();
  for (const Attribute& attribute : attributes) {
    json.key(utf8_text(attribute.key));
    if (attribute.is_text || !is_json(attribute.value)) {
      json.string(utf8_text(attribute.value));
    } else {
      json.raw(attribute.value);
    }
  }
  json.end_object();
}

void write_span(JsonWriter& json, const Span& span) {
  json.begin_object().key("span_id").string(span.span_id);
  write_or_null(json, "parent_id", span.parent_id);
  write_text(json, "name", span.name);
  write_text(json, "service", span.service);
  write_text(json, "worker", span.worker);
  write_text(json, "scope", span.scope);
  write_text(json, "user", span.owner);
  const bool is_known = span.kind >= 0 && static_cast<size_t>(span.kind) < std::size(kKinds);
  json.key("kind").string(kKinds[is_known ? static_cast<size_t>(span.kind) : 0]);
  write_micros(json.key("start"), span.start);
  write_micros(json.key("duration"), span.duration);
  json.key("failed").boolean(span.failed);
  write_text(json, "status_message", span.status_message);
  write_attributes(json, span.attributes);
  json.key("events").begin_array();
  for (const telemetry_store::Event& event : span.events) {
    json.begin_object();
    write_micros(json.key("time"), event.time);
    write_text(json, "name", event.name);
    write_attributes(json, event.attributes);
    json.end_object();
  }
  json.end_array().key("links").begin_array();
  for (const telemetry_store::Link& link : span.links) {
    json.begin_object().key("trace_id").string(link.trace_id).key("span_id").string(link.span_id);
    write_attributes(json, link.attributes);
    json.end_object();
  }
  json.end_array().end_object();
}

void write_explanation(JsonWriter& json, const control::Explanation& explanation) {
  json.key("explanation").begin_object();
  write_text(json, "summary", explanation.summary);
  json.key("parts").begin_array();
  for (const control::ExplainedPart& part : explanation.parts) {
    json.begin_object().key("kind").string(control::part_kind_name(part.kind));
    json.key("seconds").number(part.seconds).key("share").number(part.share);
    write_text(json, "text", part.text);
    write_or_null(json, "span_id", part.span_id);
    json.end_object();
  }
  json.end_array().end_object();
}

void write_labels(JsonWriter& json, const std::map<std::string, std::string>& labels) {
  json.key("labels").begin_object();
  for (const auto& [key, value] : labels) json.key(utf8_text(key)).string(utf8_text(value));
  json.end_object();
}

void write_points(JsonWriter& json, const std::vector<double>& points, double unit = 1) {
  json.key("points").begin_array();
  for (const double point : points) json.number(point * unit);
  json.end_array();
}

Nanos end_of(const std::vector<Span>& spans) {
  Nanos end = 0;
  for (const Span& span : spans) end = std::max(end, span.start + span.duration);
  return end;
}

}  // namespace

void write_micros(JsonWriter& json, Nanos nanos) {
  const Nanos rest = std::abs(nanos % 1000);
  std::string text = nanos < 0 && nanos > -1000 ? "-0" : std::to_string(nanos / 1000);
  if (rest != 0) {
    char fraction[8];
    std::snprintf(fraction, sizeof(fraction), ".%03d", static_cast<int>(rest));
    text += fraction;
    text.erase(text.find_last_not_of('0') + 1);
  }
  json.raw(text);
}

std::string traces_json(const telemetry_store::TracePage& page) {
  JsonWriter json;
  json.begin_object().key("traces").begin_array();
  for (const telemetry_store::TraceSummary& trace : page.traces) {
    json.begin_object().key("trace_id").string(trace.trace_id).key("root").begin_object();
    write_text(json, "name", trace.root_name);
    write_text(json, "service", trace.root_service);
    json.key("span_id").string(trace.root_span_id).end_object();
    write_micros(json.key("start"), trace.start);
    write_micros(json.key("duration"), trace.duration);
    json.key("spans").integer(trace.spans).key("failed_spans").integer(trace.failed_spans);
    write_text(json, "user", trace.owner);
    write_text(json, "session", trace.session);
    write_text(json, "run", trace.run);
    write_text(json, "sampler", trace.sampler);
    write_text(json, "request", trace.request);
    write_text(json, "operation", trace.operation);
    write_text(json, "base_model", trace.base_model);
    json.key("match").begin_object().key("span_id").string(trace.matched_span_id);
    write_text(json, "name", trace.matched_name);
    write_micros(json.key("duration"), trace.matched_duration);
    json.end_object().end_object();
  }
  json.end_array();
  write_or_null(json, "next", page.next);
  json.end_object();
  return std::move(json).take();
}

std::string durations_json(const telemetry_store::DurationHistogram& histogram) {
  JsonWriter json;
  json.begin_object().key("bounds").begin_array();
  for (const Nanos bound : histogram.bounds) write_micros(json, bound);
  json.end_array().key("counts").begin_array();
  for (const uint64_t count : histogram.counts) json.integer(static_cast<int64_t>(count));
  json.end_array().key("failed").begin_array();
  for (const uint64_t count : histogram.failed) json.integer(static_cast<int64_t>(count));
  json.end_array().end_object();
  return std::move(json).take();
}

std::string series_json(const telemetry_store::SpanSeries& series, telemetry_store::SpanFunction function) {
  using telemetry_store::SpanFunction;
  const bool is_time = function == SpanFunction::kMean || function == SpanFunction::kP50 ||
                       function == SpanFunction::kP95 || function == SpanFunction::kP99;
  JsonWriter json;
  json.begin_object();
  write_micros(json.key("start"), series.start);
  write_micros(json.key("step"), series.step);
  json.key("series").begin_array();
  for (const auto& [key, points] : series.series) {
    json.begin_object();
    write_text(json, "key", key);
    write_points(json, points, is_time ? kMicrosOfSecond : 1);
    json.end_object();
  }
  json.end_array().end_object();
  return std::move(json).take();
}

JsonPieces trace_pieces(std::string trace_id, std::shared_ptr<const control::ObservedTrace> observed) {
  const telemetry_store::Trace& trace = observed->trace;
  JsonWriter json;
  const Nanos start = trace.spans.empty() ? 0 : trace.spans.front().start;
  json.begin_object().key("trace_id").string(trace_id);
  write_micros(json.key("start"), start);
  write_micros(json.key("duration"), trace.spans.empty() ? 0 : end_of(trace.spans) - start);
  json.key("truncated").boolean(trace.truncated);
  write_explanation(json, observed->explanation);
  json.key("critical_path").begin_array();
  for (const control::PathPiece& piece : observed->critical_path) {
    json.begin_object().key("span_id").string(trace.spans[piece.span].span_id);
    write_micros(json.key("start"), piece.start);
    write_micros(json.key("duration"), piece.duration);
    json.end_object();
  }
  json.end_array().key("linked_from").begin_array();
  for (const telemetry_store::LinkedFrom& link : trace.linked_from) {
    json.begin_object().key("trace_id").string(link.trace_id).key("span_id").string(link.span_id);
    write_text(json, "name", link.name);
    json.key("to_span_id").string(link.to_span_id).end_object();
  }
  json.end_array().key("spans").begin_array();
  for (const Span& span : trace.spans) {
    write_span(json, span);
    if (json.size() >= kJsonPieceBytes) co_yield json.take_piece();
  }
  json.end_array().key("logs").begin_array();
  for (const telemetry_store::LogRecord& record : trace.logs) {
    write_log(json, record);
    if (json.size() >= kJsonPieceBytes) co_yield json.take_piece();
  }
  json.end_array().end_object();
  co_yield json.take_piece();
}

void write_log(JsonWriter& json, const telemetry_store::LogRecord& record) {
  const std::string_view level = record.severity >= 17   ? "error"
                                 : record.severity >= 13 ? "warning"
                                 : record.severity >= 9  ? "info"
                                                         : "debug";
  json.begin_object();
  write_micros(json.key("time"), record.time);
  json.key("level").string(level);
  write_text(json, "event", record.event);
  write_text(json, "body", record.body);
  write_text(json, "service", record.service);
  write_text(json, "worker", record.worker);
  write_text(json, "scope", record.scope);
  write_text(json, "user", record.owner);
  write_or_null(json, "trace_id", record.trace_id);
  write_or_null(json, "span_id", record.span_id);
  write_attributes(json, record.attributes);
  json.end_object();
}

JsonPieces log_pieces(std::shared_ptr<const telemetry_store::LogPage> page) {
  JsonWriter json;
  json.begin_object().key("logs").begin_array();
  for (const telemetry_store::LogRecord& record : page->logs) {
    write_log(json, record);
    if (json.size() >= kJsonPieceBytes) co_yield json.take_piece();
  }
  json.end_array();
  write_or_null(json, "next", page->next);
  write_text(json, "newest", page->newest);
  json.end_object();
  co_yield json.take_piece();
}

std::string metrics_json(const std::vector<telemetry_store::MetricInfo>& metrics) {
  JsonWriter json;
  json.begin_object().key("metrics").begin_array();
  for (const telemetry_store::MetricInfo& metric : metrics) {
    json.begin_object();
    write_text(json, "name", metric.name);
    write_text(json, "prometheus_name", metric.prometheus_name);
    json.key("type").string(telemetry_store::metric_kind_name(metric.kind));
    write_text(json, "unit", metric.unit);
    write_text(json, "description", metric.description);
    json.key("labels").begin_object();
    for (const auto& [key, values] : metric.labels) {
      json.key(utf8_text(key)).begin_array();
      for (const std::string& value : values) json.string(utf8_text(value));
      json.end_array();
    }
    json.end_object().end_object();
  }
  json.end_array().end_object();
  return std::move(json).take();
}

std::string metric_json(const telemetry_store::MetricAnswer& answer, std::string_view function) {
  JsonWriter json;
  json.begin_object();
  write_text(json, "name", answer.metric.name);
  write_text(json, "unit", answer.metric.unit);
  json.key("type").string(telemetry_store::metric_kind_name(answer.metric.kind));
  json.key("fn").string(function);
  write_micros(json.key("start"), answer.start);
  write_micros(json.key("step"), answer.step);
  json.key("truncated").boolean(answer.truncated).key("series").begin_array();
  for (const telemetry_store::MetricSeries& series : answer.series) {
    json.begin_object();
    write_labels(json, series.labels);
    write_points(json, series.points);
    json.end_object();
  }
  json.end_array().end_object();
  return std::move(json).take();
}

std::string exemplars_json(const std::vector<telemetry_store::MetricExemplar>& exemplars) {
  JsonWriter json;
  json.begin_object().key("exemplars").begin_array();
  for (const telemetry_store::MetricExemplar& exemplar : exemplars) {
    json.begin_object();
    write_micros(json.key("time"), exemplar.time);
    json.key("value").number(exemplar.value);
    json.key("trace_id").string(exemplar.trace_id).key("span_id").string(exemplar.span_id);
    write_labels(json, exemplar.labels);
    json.end_object();
  }
  json.end_array().end_object();
  return std::move(json).take();
}

}  // namespace tuft::api
