// Telemetry: traces, logs, metrics and the curves of runs.
#include <algorithm>
#include <memory>
#include <utility>

#include "api/handlers/handlers.h"
#include "api/handlers/json_body.h"
#include "api/handlers/observe_query.h"
#include "api/json/json_writer.h"
#include "api/json/observe_json.h"
#include "api/json/perfetto_json.h"
#include "api/routing/own_url.h"
#include "control/observe/observer.h"

namespace tuft::api {
namespace {

constexpr int64_t kTracesDefault = 100, kTracesMax = 1'000;
constexpr int64_t kLogsDefault = 200, kLogsMax = 1'000;
constexpr int64_t kPointsDefault = 1'000, kPointsMax = 5'000;
constexpr size_t kNameBytesMax = 256;
constexpr size_t kLabelsMax = 16;
constexpr size_t kTraceIdDigits = 32, kSpanIdDigits = 16;
// The memory that a span takes beside itself: in the critical path, the explanation and the answer.
constexpr size_t kSpanBytes = 1 << 10;
constexpr Nanos kSeriesSteps = 120;

Result<std::string> trace_id_of(const Exchange& exchange) {
  const std::string& id = exchange.path_parameters[0];
  const bool is_hex = id.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (id.size() == kTraceIdDigits && is_hex) return id;
  return not_found("there is no such trace, or it is not visible to you", "trace_not_found");
}

// Charges what was read to the user until the returned object ends, which an answer in pieces keeps until its client
// has read it.
template <typename Read>
Result<std::shared_ptr<const Read>> charge(Exchange& exchange, Read read, size_t bytes) {
  struct Charged {
    Read read;
    ByteAccount::Hold memory;
  };
  TUFT_ASSIGN(ByteAccount::Hold memory,
              exchange.control.generation().hold_memory(exchange.user, static_cast<int64_t>(bytes)));
  auto charged = std::make_shared<const Charged>(Charged{std::move(read), std::move(memory)});
  return std::shared_ptr<const Read>(charged, &charged->read);
}

// The store's words say nothing that differs between an unknown trace and that of another user, and neither do these.
Result<std::shared_ptr<const control::ObservedTrace>> find_trace(Exchange& exchange) {
  QueryFields query(exchange.query);
  query.only({});
  TUFT_TRY(query.status());
  TUFT_ASSIGN(const std::string id, trace_id_of(exchange));
  Result<control::ObservedTrace> found = exchange.control.observer().trace(exchange.user, id);
  if (!found.ok()) {
    if (found.error().code != ErrorCode::kNotFound) return std::move(found).error();
    return not_found("there is no such trace, or it is not visible to you", "trace_not_found");
  }
  const size_t bytes = found->trace.memory_bytes + (found->trace.spans.size() + found->trace.logs.size()) * kSpanBytes;
  return charge(exchange, std::move(found).value(), bytes);
}

std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

telemetry_store::MetricQuery read_metric(QueryFields& query, Nanos now) {
  telemetry_store::MetricQuery metric;
  metric.name = query.text("name", kNameBytesMax).value_or("");
  if (metric.name.empty() && query.status().ok()) query.problem("name", "is missing: it is the name of a metric");
  metric.time = read_range(query, now);
  const std::string where = query.text("where", 4 * kNameBytesMax).value_or("");
  for (const std::string_view part : split_at_commas(where)) {
    const size_t colon = part.find(':');
    if (colon == part.npos || colon == 0) {
      query.problem("where", "must be labels with their values: key:value,key:value");
      break;
    }
    metric.where[std::string(part.substr(0, colon))] = part.substr(colon + 1);
  }
  if (metric.where.size() > kLabelsMax) query.problem("where", "must have at most 16 labels");
  return metric;
}

}  // namespace

Result<Answer> handle_observe_whoami(Exchange& exchange) {
  QueryFields query(exchange.query);
  query.only({});
  TUFT_TRY(query.status());
  return observed_answer(whoami_json(exchange, exchange.user));
}

std::string whoami_json(const Exchange& exchange, const control::UserId& user) {
  const control::Observer& observer = exchange.control.observer();
  JsonWriter json;
  json.begin_object().key("user").string(user.str()).key("operator").boolean(observer.is_operator(user));
  json.key("version").string(server_version()).key("store").boolean(observer.has_store());
  json.key("console").boolean(exchange.console != nullptr);
  write_micros(json.key("server_time"), system_clock().wall());
  json.end_object();
  return std::move(json).take();
}

Result<Answer> handle_observe_traces(Exchange& exchange) {
  QueryFields query(exchange.query);
  query.only(filter_keys({"limit", "cursor"}));
  const telemetry_store::Filter filter = read_filter(query, system_clock().wall());
  const telemetry_store::PageOf page = read_page(query, kTracesDefault, kTracesMax);
  TUFT_TRY(query.status());
  TUFT_ASSIGN(const auto found, exchange.control.observer().traces(exchange.user, filter, page));
  return observed_answer(traces_json(found));
}

Result<Answer> handle_observe_histogram(Exchange& exchange) {
  QueryFields query(exchange.query);
  query.only(filter_keys({}));
  const telemetry_store::Filter filter = read_filter(query, system_clock().wall());
  TUFT_TRY(query.status());
  TUFT_ASSIGN(const auto histogram, exchange.control.observer().durations(exchange.user, filter));
  return observed_answer(durations_json(histogram));
}

Result<Answer> handle_observe_series(Exchange& exchange) {
  QueryFields query(exchange.query);
  query.only(filter_keys({"fn", "by", "step"}));
  const Nanos now = system_clock().wall();
  telemetry_store::Filter filter = read_filter(query, now);
  const std::string_view word =
      query.word("fn", "count", {"count", "errors", "rate", "mean", "p50", "p95", "p99", "busy"});
  const std::string_view by = query.word("by", "", {"", "name", "operation", "user", "base_model"});
  Nanos step = read_step(query, filter.time);
  TUFT_TRY(query.status());
  if (filter.time.until == 0) filter.time.until = now;
  if (step == 0) step = std::max(kSecond, (filter.time.until - filter.time.from) / kSeriesSteps);
  const auto function = telemetry_store::find_span_function(word).value_or(telemetry_store::SpanFunction::kCount);
  TUFT_ASSIGN(const ByteAccount::Hold memory,
              exchange.control.generation().hold_memory(exchange.user, telemetry_store::kSpanSeriesQueryBytes));
  TUFT_ASSIGN(const auto series, exchange.control.observer().span_series(exchange.user, filter, function, by, step));
  return observed_answer(series_json(series, function));
}

Result<Answer> handle_observe_trace(Exchange& exchange) {
  TUFT_ASSIGN(auto observed, find_trace(exchange));
  Answer answer = answer_in_pieces(exchange, trace_pieces(exchange.path_parameters[0], std::move(observed)));
  forbid_keeping(std::get<Response>(answer));
  return answer;
}

Result<Answer> handle_observe_perfetto(Exchange& exchange) {
  TUFT_ASSIGN(auto observed, find_trace(exchange));
  Answer answer = answer_in_pieces(exchange, perfetto_pieces(std::move(observed)));
  std::get<Response>(answer).headers.emplace_back(
      "Content-Disposition", "attachment; filename=\"trace-" + exchange.path_parameters[0] + ".json\"");
  forbid_keeping(std::get<Response>(answer));
  return answer;
}

Result<Answer> handle_observe_logs(Exchange& exchange) {
  QueryFields query(exchange.query);
  query.only(filter_keys({"limit", "cursor", "level", "event", "trace", "span", "after"}));
  telemetry_store::LogQuery logs;
  logs.filter = read_filter(query, system_clock().wall());
  const std::string_view level = query.word("level", "debug", {"debug", "info", "warning", "error"});
  // The lowest SeverityNumber of each level.
  logs.severity_min = level == "error" ? 17 : level == "warning" ? 13 : level == "info" ? 9 : 0;
  if (const auto event = query.text("event", kNameBytesMax)) {
    if (!logs.filter.name.empty()) query.problem("event", "is the same as name; give one of them");
    logs.filter.name = *event;
  }
  logs.trace_id = read_hex(query, "trace", kTraceIdDigits);
  logs.span_id = read_hex(query, "span", kSpanIdDigits);
  logs.page = read_page(query, kLogsDefault, kLogsMax);
  logs.after = query.text("after", kNameBytesMax).value_or("");
  if (!logs.after.empty() && !logs.page.cursor.empty()) query.problem("after", "cannot be given with cursor");
  TUFT_TRY(query.status());
  TUFT_ASSIGN(telemetry_store::LogPage found, exchange.control.observer().logs(exchange.user, logs));
  const size_t bytes = found.memory_bytes;
  TUFT_ASSIGN(const auto page, charge(exchange, std::move(found), bytes));
  Answer answer = answer_in_pieces(exchange, log_pieces(page));
  forbid_keeping(std::get<Response>(answer));
  return answer;
}

Result<Answer> handle_observe_metrics(Exchange& exchange) {
  QueryFields query(exchange.query);
  query.only({});
  TUFT_TRY(query.status());
  TUFT_ASSIGN(const auto metrics, exchange.control.observer().metrics(exchange.user));
  return observed_answer(metrics_json(metrics));
}

Result<Answer> handle_observe_metric(Exchange& exchange) {
  QueryFields query(exchange.query);
  query.only({"name", "fn", "by", "where", "from", "until", "step"});
  telemetry_store::MetricQuery metric = read_metric(query, system_clock().wall());
  const std::string_view word =
      query.word("fn", "last", {"rate", "increase", "last", "mean", "max", "mean_value", "p50", "p90", "p95", "p99"});
  metric.function = telemetry_store::find_metric_function(word).value_or(telemetry_store::MetricFunction::kLast);
  const std::string by = query.text("by", 4 * kNameBytesMax).value_or("");
  for (const std::string_view key : split_at_commas(by)) metric.by.emplace_back(key);
  if (metric.by.size() > kLabelsMax) query.problem("by", "must have at most 16 keys");
  metric.step = read_step(query, metric.time);
  TUFT_TRY(query.status());
  TUFT_ASSIGN(const auto answer, exchange.control.observer().metric(exchange.user, metric));
  TUFT_TRY(hold_memory(exchange, static_cast<int64_t>(answer.memory_bytes)));
  return observed_answer(metric_json(answer, word));
}

Result<Answer> handle_observe_exemplars(Exchange& exchange) {
  QueryFields query(exchange.query);
  query.only({"name", "where", "from", "until"});
  const telemetry_store::MetricQuery metric = read_metric(query, system_clock().wall());
  TUFT_TRY(query.status());
  TUFT_ASSIGN(const auto exemplars, exchange.control.observer().exemplars(exchange.user, metric));
  return observed_answer(exemplars_json(exemplars));
}

Result<Answer> handle_observe_steps(Exchange& exchange) {
  QueryFields query(exchange.query);
  query.only({"after", "points"});
  const int64_t after = query.integer("after", 0, 0, std::numeric_limits<int64_t>::max());
  const int64_t points = query.integer("points", kPointsDefault, 1, kPointsMax);
  TUFT_TRY(query.status());
  const control::RunId run(exchange.path_parameters[0]);
  TUFT_ASSIGN(const auto steps,
              exchange.control.observer().steps(exchange.user, run, after, static_cast<size_t>(points)));
  return observed_answer(steps_json(steps));
}

}  // namespace tuft::api
