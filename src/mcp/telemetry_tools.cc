// The tools about traces, logs and metrics.
#include <algorithm>
#include <cctype>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mcp/tools.h"

namespace tuft::mcp {
namespace {

using telemetry_store::Filter;

constexpr double kMillisMax = 1e12;
constexpr size_t kNameBytesMax = 300;
constexpr size_t kValueBytesMax = 300;            // of an attribute
constexpr size_t kShownBytesMax = 1'000;          // of a log record, a status
constexpr size_t kAttributesMax = 40;             // of a span or record
constexpr size_t kAttributeBytesMax = 128 << 10;  // of one answer
constexpr size_t kLogsOfTraceMax = 50;
constexpr size_t kLinksMax = 20;
constexpr size_t kPathPiecesMax = 40;
constexpr size_t kSeriesMax = 40;
// The memory that a record takes beside itself in the critical path and the explanation, and in the answer if it is
// shown: as a tree, as text, and as text within text.
constexpr size_t kRecordBytes = 1 << 10;
constexpr size_t kShownBytes = 16 << 10;
constexpr size_t kLabelValuesMax = 20;
constexpr size_t kLabelBytesMax = 128 << 10;  // of one answer

// Attributes of one answer, until its budget is used up.
class AttributeWriter {
 public:
  Json write(const std::vector<telemetry_store::Attribute>& attributes) {
    Json object = Json::object();
    for (const telemetry_store::Attribute& attribute : attributes) {
      if (object.size() == kAttributesMax || used_ > kAttributeBytesMax) break;
      used_ += attribute.key.size() + std::min(attribute.value.size(), kValueBytesMax);
      Json value = nullptr;
      if (!attribute.is_text && attribute.value.size() <= kValueBytesMax) {
        value = Json::parse(attribute.value, nullptr, false);
      }
      if (value.is_discarded() || attribute.is_text || attribute.value.size() > kValueBytesMax) {
        value = short_text_json(attribute.value, kValueBytesMax);
      }
      object[attribute.key.substr(0, kNameBytesMax)] = std::move(value);
    }
    return object;
  }

 private:
  size_t used_ = 0;
};

Filter read_filter(Arguments& arguments) {
  Filter filter;
  filter.session = arguments.text("session");
  filter.run = arguments.text("run");
  filter.sampler = arguments.text("sampler");
  filter.request = arguments.text("request");
  filter.operation = arguments.text("operation");
  filter.base_model = arguments.text("base_model");
  filter.user = arguments.text("user");
  filter.service = arguments.text("service");
  filter.text = arguments.text("text");
  filter.time = arguments.times();
  return filter;
}

std::optional<Nanos> nanos(std::optional<double> millis) {
  if (!millis) return std::nullopt;
  return static_cast<Nanos>(*millis * static_cast<double>(kMillisecond));
}

Json summary_json(const telemetry_store::TraceSummary& trace) {
  Json json = {{"trace_id", trace.trace_id},
               {"root", short_text_json(trace.root_name, kNameBytesMax)},
               {"service", short_text_json(trace.root_service, kNameBytesMax)},
               {"start", time_json(trace.start)},
               {"duration_ms", millis_json(trace.duration)},
               {"spans", trace.spans},
               {"failed_spans", trace.failed_spans}};
  const std::pair<const char*, const std::string&> keys[] = {
      {"user", trace.owner},           {"session", trace.session}, {"run", trace.run},
      {"sampler", trace.sampler},      {"request", trace.request}, {"operation", trace.operation},
      {"base_model", trace.base_model}};
  for (const auto& [key, value] : keys) {
    if (!value.empty()) json[key] = short_text_json(value, kNameBytesMax);
  }
  if (!trace.matched_span_id.empty() && trace.matched_span_id != trace.root_span_id) {
    json["matched_span"] = {{"span_id", trace.matched_span_id},
                            {"name", short_text_json(trace.matched_name, kNameBytesMax)},
                            {"duration_ms", millis_json(trace.matched_duration)}};
  }
  return json;
}

std::string_view level_name(int severity) {
  if (severity >= 17) return "error";
  if (severity >= 13) return "warning";
  return severity >= 9 ? "info" : "debug";
}

int severity_of(const std::string& level) {
  if (level == "error") return 17;
  if (level == "warning") return 13;
  if (level == "info") return 9;
  return level == "debug" ? 5 : 0;
}

Json log_json(const telemetry_store::LogRecord& record, AttributeWriter& attributes) {
  Json json = {{"time", time_json(record.time)},
               {"level", level_name(record.severity)},
               {"event", short_text_json(record.event, kNameBytesMax)},
               {"text", short_text_json(record.body, kShownBytesMax)},
               {"service", short_text_json(record.service, kNameBytesMax)},
               {"worker", short_text_json(record.worker, kNameBytesMax)},
               {"user", text_json(record.owner)},
               {"trace_id", text_json(record.trace_id)},
               {"span_id", text_json(record.span_id)}};
  if (!record.attributes.empty()) json["attributes"] = attributes.write(record.attributes);
  return json;
}

// Returns the places of the spans to show, in the order of the trace: those of the critical path, then failed ones,
// then the longest.
std::vector<size_t> chosen_spans(const control::ObservedTrace& observed, size_t spans_max) {
  const auto& spans = observed.trace.spans;
  std::vector<int> rank(spans.size(), 2);
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans[i].failed) rank[i] = 1;
  }
  for (const control::PathPiece& piece : observed.critical_path) {
    if (piece.span < rank.size()) rank[piece.span] = 0;
  }
  std::vector<size_t> order(spans.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return rank[a] != rank[b] ? rank[a] < rank[b] : spans[a].duration > spans[b].duration;
  });
  order.resize(std::min(order.size(), spans_max));
  std::sort(order.begin(), order.end());
  return order;
}

Json span_json(const telemetry_store::Span& span, Nanos start, bool with_attributes, AttributeWriter& attributes) {
  Json json = {{"span_id", span.span_id},
               {"parent_id", text_json(span.parent_id)},
               {"name", span.name.substr(0, kNameBytesMax)},
               {"start_ms", millis_json(span.start - start)},
               {"duration_ms", millis_json(span.duration)}};
  if (!span.worker.empty()) json["worker"] = short_text_json(span.worker, kNameBytesMax);
  if (!span.service.empty()) json["service"] = short_text_json(span.service, kNameBytesMax);
  if (span.failed) json["failed"] = true;
  if (!span.status_message.empty()) json["status"] = short_text_json(span.status_message, kShownBytesMax);
  Json links = Json::array();
  for (size_t i = 0; i < std::min(span.links.size(), kLinksMax); ++i) {
    links.push_back({{"trace_id", span.links[i].trace_id}, {"span_id", span.links[i].span_id}});
  }
  if (!links.empty()) json["links"] = std::move(links);
  if (with_attributes && !span.attributes.empty()) json["attributes"] = attributes.write(span.attributes);
  return json;
}

Json explanation_json(const control::Explanation& explanation) {
  Json parts = Json::array();
  for (const control::ExplainedPart& part : explanation.parts) {
    parts.push_back({{"kind", control::part_kind_name(part.kind)},
                     {"seconds", part.seconds},
                     {"share", part.share},
                     {"text", text_json(part.text)},
                     {"span_id", text_json(part.span_id)}});
  }
  return {{"summary", explanation.summary}, {"parts", std::move(parts)}};
}

Json path_json(const control::ObservedTrace& observed) {
  Json path = Json::array();
  for (const control::PathPiece& piece : observed.critical_path) {
    if (path.size() == kPathPiecesMax) break;
    if (piece.span >= observed.trace.spans.size()) continue;
    const telemetry_store::Span& span = observed.trace.spans[piece.span];
    path.push_back({{"span_id", span.span_id},
                    {"name", short_text_json(span.name, kNameBytesMax)},
                    {"duration_ms", millis_json(piece.duration)}});
  }
  return path;
}

Json trace_json(const std::string& trace_id, const control::ObservedTrace& observed, size_t spans_max,
                bool with_attributes) {
  const telemetry_store::Trace& trace = observed.trace;
  Nanos start = 0, end = 0;
  for (const telemetry_store::Span& span : trace.spans) {
    start = start == 0 ? span.start : std::min(start, span.start);
    end = std::max(end, span.start + span.duration);
  }
  AttributeWriter attributes;
  Json spans = Json::array(), logs = Json::array(), linked = Json::array();
  for (const size_t i : chosen_spans(observed, spans_max)) {
    spans.push_back(span_json(trace.spans[i], start, with_attributes, attributes));
  }
  for (size_t i = 0; i < std::min(trace.logs.size(), kLogsOfTraceMax); ++i) {
    logs.push_back(log_json(trace.logs[i], attributes));
  }
  for (size_t i = 0; i < std::min(trace.linked_from.size(), kLinksMax); ++i) {
    const telemetry_store::LinkedFrom& from = trace.linked_from[i];
    linked.push_back(
        {{"trace_id", from.trace_id}, {"span_id", from.span_id}, {"name", short_text_json(from.name, kNameBytesMax)}});
  }
  return {{"trace_id", trace_id},
          {"start", time_json(start)},
          {"duration_ms", millis_json(end - start)},
          {"explanation", explanation_json(observed.explanation)},
          {"critical_path", path_json(observed)},
          {"spans", std::move(spans)},
          {"spans_total", trace.spans.size()},
          {"truncated", trace.truncated},
          {"logs", std::move(logs)},
          {"logs_total", trace.logs.size()},
          {"linked_from", std::move(linked)}};
}

bool is_trace_id(const std::string& id) {
  return id.size() == 32 && id.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// `label_bytes` is what the labels of the answer have so far: a user's own program may give each metric 32 labels with
// values of 256 bytes.
Json metric_info_json(const telemetry_store::MetricInfo& metric, size_t& label_bytes) {
  Json labels = Json::object();
  for (const auto& [key, values] : metric.labels) {
    if (label_bytes > kLabelBytesMax) break;
    label_bytes += key.size();
    Json shown = Json::array();
    for (const std::string& value : values) {
      if (shown.size() == kLabelValuesMax || label_bytes > kLabelBytesMax) {
        shown.push_back("...");
        break;
      }
      label_bytes += value.size();
      shown.push_back(value);
    }
    labels[key] = std::move(shown);
  }
  return {{"name", metric.name},
          {"type", telemetry_store::metric_kind_name(metric.kind)},
          {"unit", text_json(metric.unit)},
          {"description", text_json(metric.description)},
          {"labels", std::move(labels)}};
}

}  // namespace

Result<Json> find_traces(const Caller& caller, Arguments& arguments) {
  Filter filter = read_filter(arguments);
  filter.name = arguments.text("name");
  const std::string status = arguments.word("status", "", {"ok", "error"});
  if (!status.empty()) filter.failed = status == "error";
  filter.duration_min = nanos(arguments.number("min_duration_ms", 0, kMillisMax));
  filter.duration_max = nanos(arguments.number("max_duration_ms", 0, kMillisMax));
  telemetry_store::PageOf page;
  page.limit = static_cast<size_t>(arguments.integer("limit", 20, 1, 100));
  page.cursor = arguments.text("cursor");
  TUFT_TRY(arguments.finish());
  TUFT_ASSIGN(const telemetry_store::TracePage found, caller.observer.traces(caller.user, filter, page));
  Json traces = Json::array();
  for (const telemetry_store::TraceSummary& trace : found.traces) traces.push_back(summary_json(trace));
  return Json{{"traces", std::move(traces)}, {"next_cursor", text_json(found.next)}};
}

Result<Json> get_trace(const Caller& caller, Arguments& arguments) {
  const std::string trace_id = arguments.text("trace_id");
  const auto spans_max = static_cast<size_t>(arguments.integer("spans_max", 60, 1, 500));
  const bool with_attributes = arguments.flag("attributes", true);
  arguments.require("trace_id", !trace_id.empty());
  TUFT_TRY(arguments.finish());
  if (!is_trace_id(trace_id)) {
    return invalid_argument("the argument 'trace_id' must be 32 digits of 0-9 and a-f, as find_traces returns it");
  }
  TUFT_ASSIGN(const control::ObservedTrace observed, caller.observer.trace(caller.user, trace_id));
  const telemetry_store::Trace& trace = observed.trace;
  const size_t shown = std::min(trace.spans.size(), spans_max) + std::min(trace.logs.size(), kLogsOfTraceMax);
  const size_t bytes = trace.memory_bytes + (trace.spans.size() + trace.logs.size()) * kRecordBytes;
  TUFT_TRY(caller.hold_memory(static_cast<int64_t>(bytes + shown * kShownBytes)));
  return trace_json(trace_id, observed, spans_max, with_attributes);
}

Result<Json> search_logs(const Caller& caller, Arguments& arguments) {
  telemetry_store::LogQuery query;
  query.filter = read_filter(arguments);
  query.filter.name = arguments.text("event");
  query.severity_min = severity_of(arguments.word("level", "", {"debug", "info", "warning", "error"}));
  query.trace_id = arguments.text("trace_id");
  query.span_id = arguments.text("span_id");
  query.page.limit = static_cast<size_t>(arguments.integer("limit", 50, 1, 200));
  query.page.cursor = arguments.text("cursor");
  TUFT_TRY(arguments.finish());
  TUFT_ASSIGN(const telemetry_store::LogPage found, caller.observer.logs(caller.user, query));
  TUFT_TRY(caller.hold_memory(static_cast<int64_t>(found.memory_bytes + found.logs.size() * kShownBytes)));
  AttributeWriter attributes;
  Json logs = Json::array();
  for (const telemetry_store::LogRecord& record : found.logs) logs.push_back(log_json(record, attributes));
  return Json{{"logs", std::move(logs)}, {"next_cursor", text_json(found.next)}};
}

Result<Json> list_metrics(const Caller& caller, Arguments& arguments) {
  const std::string text = lower(arguments.text("text"));
  const auto limit = static_cast<size_t>(arguments.integer("limit", 100, 1, 300));
  TUFT_TRY(arguments.finish());
  TUFT_ASSIGN(const std::vector<telemetry_store::MetricInfo> all, caller.observer.metrics(caller.user));
  Json metrics = Json::array();
  size_t left_out = 0;
  size_t label_bytes = 0;
  for (const telemetry_store::MetricInfo& metric : all) {
    if (lower(metric.name + " " + metric.description).find(text) == std::string::npos) continue;
    if (metrics.size() < limit) {
      metrics.push_back(metric_info_json(metric, label_bytes));
    } else {
      ++left_out;
    }
  }
  return Json{{"metrics", std::move(metrics)}, {"left_out", left_out}};
}

Result<Json> query_metric(const Caller& caller, Arguments& arguments) {
  telemetry_store::MetricQuery query;
  query.name = arguments.text("name");
  const std::string word =
      arguments.word("fn", "", {"rate", "increase", "last", "mean", "max", "mean_value", "p50", "p90", "p95", "p99"});
  query.by = arguments.texts("by", 8);
  query.where = arguments.text_by_name("where", 8);
  query.time = arguments.times();
  const int64_t points = arguments.integer("points", 30, 1, 300);
  arguments.require("name", !query.name.empty());
  arguments.require("fn", !word.empty());
  TUFT_TRY(arguments.finish());
  query.function = telemetry_store::find_metric_function(word).value_or(query.function);
  const Nanos until = query.time.until == 0 ? caller.clock.wall() : query.time.until;
  query.step = std::max<Nanos>(kSecond, (until - query.time.from + points - 1) / points);
  TUFT_ASSIGN(const telemetry_store::MetricAnswer answer, caller.observer.metric(caller.user, query));
  TUFT_TRY(caller.hold_memory(static_cast<int64_t>(answer.memory_bytes)));
  Json series = Json::array();
  for (const telemetry_store::MetricSeries& one : answer.series) {
    if (series.size() == kSeriesMax) break;
    Json values = Json::array();
    for (const double point : one.points) values.push_back(number_json(point));
    series.push_back({{"labels", one.labels}, {"points", std::move(values)}});
  }
  return Json{{"name", answer.metric.name.empty() ? query.name : answer.metric.name},
              {"unit", text_json(answer.metric.unit)},
              {"type", telemetry_store::metric_kind_name(answer.metric.kind)},
              {"fn", word},
              {"start", time_json(answer.start)},
              {"step_s", to_seconds(answer.step)},
              {"truncated", answer.truncated || answer.series.size() > kSeriesMax},
              {"series", std::move(series)}};
}

}  // namespace tuft::mcp
