#include "mcp/tools.h"

#include <algorithm>
#include <array>

namespace tuft::mcp {
namespace {

// ---- schemas, as JSON: what object_schema() and input_schema() complete

constexpr std::string_view kKeys = R"({
  "session": {"type": "string", "description": "Id of a client session"},
  "run": {"type": "string", "description": "Id of a training run"},
  "sampler": {"type": "string", "description": "Id of a sampling session"},
  "request": {"type": "string", "description": "Id of a request"},
  "operation": {"type": "string", "description": "forward_backward, optim_step, sample, save_weights, ..."},
  "base_model": {"type": "string"},
  "user": {"type": "string", "description": "Name of a user; other users are visible to operators only"},
  "service": {"type": "string", "description": "service.name: tuft, or that of a user's own program"}})";

constexpr std::string_view kTimes = R"({
  "from": {"type": "string",
    "description": "Begin: -15m (s, m, h, d before now) or 2026-11-25T04:00:00Z. Default: -1h"},
  "until": {"type": "string", "description": "End, in the same form. Default: now"}})";

constexpr std::string_view kNothingIn = R"({"properties": {}})";

constexpr std::string_view kFindTracesIn = R"({"properties": {
  "name": {"type": "string", "description": "Name of a span; with a final * its beginning"},
  "text": {"type": "string", "description": "Part of a span's name or of an attribute, without case"},
  "status": {"type": "string", "enum": ["ok", "error"]},
  "min_duration_ms": {"type": "number", "minimum": 0},
  "max_duration_ms": {"type": "number", "minimum": 0},
  "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
  "cursor": {"type": "string", "description": "next_cursor of the page before"}}})";
constexpr std::string_view kFindTracesOut = R"({"required": ["traces", "next_cursor"], "properties": {
  "traces": {"type": "array", "items": {"type": "object",
    "required": ["trace_id", "root", "start", "duration_ms", "spans", "failed_spans"], "properties": {
    "trace_id": {"type": "string"}, "root": {"type": ["string", "null"]}, "service": {"type": ["string", "null"]},
    "start": {"type": ["string", "null"], "format": "date-time"}, "duration_ms": {"type": "number"},
    "spans": {"type": "integer"}, "failed_spans": {"type": "integer"}}}},
  "next_cursor": {"type": ["string", "null"]}}})";

constexpr std::string_view kGetTraceIn = R"({"required": ["trace_id"], "properties": {
  "trace_id": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
  "spans_max": {"type": "integer", "minimum": 1, "maximum": 500, "default": 60,
    "description": "Spans to return: those of the critical path, failed ones and the longest are preferred"},
  "attributes": {"type": "boolean", "default": true, "description": "Whether spans come with their attributes"}}})";
constexpr std::string_view kGetTraceOut = R"({"required": ["trace_id", "explanation", "spans", "spans_total", "logs"],
  "properties": {"trace_id": {"type": "string"}, "start": {"type": ["string", "null"], "format": "date-time"}, "duration_ms": {"type": "number"},
  "explanation": {"type": "object", "required": ["summary", "parts"], "properties": {
    "summary": {"type": "string", "description": "Why it took its time, in words"},
    "parts": {"type": "array", "items": {"type": "object", "properties": {
      "kind": {"type": "string"}, "seconds": {"type": "number"}, "share": {"type": "number"},
      "text": {"type": ["string", "null"]}, "span_id": {"type": ["string", "null"]}}}}}},
  "critical_path": {"type": "array", "items": {"type": "object"},
    "description": "The spans that were responsible for the time, in order"},
  "spans": {"type": "array", "items": {"type": "object", "required": ["span_id", "name", "start_ms", "duration_ms"],
    "properties": {"span_id": {"type": "string"}, "parent_id": {"type": ["string", "null"]}, "name": {"type": "string"},
    "start_ms": {"type": "number", "description": "After the start of the trace"}, "duration_ms": {"type": "number"}}}},
  "spans_total": {"type": "integer"}, "truncated": {"type": "boolean"},
  "logs": {"type": "array", "items": {"type": "object"}}, "logs_total": {"type": "integer"},
  "linked_from": {"type": "array", "items": {"type": "object"}}}})";

constexpr std::string_view kSearchLogsIn = R"({"properties": {
  "level": {"type": "string", "enum": ["debug", "info", "warning", "error"], "description": "The lowest level"},
  "event": {"type": "string", "description": "Name of an event; with a final * its beginning"},
  "text": {"type": "string", "description": "Part of the text of a record, without case"},
  "trace_id": {"type": "string"}, "span_id": {"type": "string"},
  "limit": {"type": "integer", "minimum": 1, "maximum": 200, "default": 50},
  "cursor": {"type": "string", "description": "next_cursor of the page before"}}})";
constexpr std::string_view kSearchLogsOut = R"({"required": ["logs", "next_cursor"], "properties": {
  "logs": {"type": "array", "description": "The newest first", "items": {"type": "object",
    "required": ["time", "level"], "properties": {"time": {"type": ["string", "null"], "format": "date-time"}, "level": {"type": "string"},
    "event": {"type": ["string", "null"]}, "text": {"type": ["string", "null"]}, "trace_id": {"type": ["string", "null"]}}}},
  "next_cursor": {"type": ["string", "null"]}}})";

constexpr std::string_view kListMetricsIn = R"({"properties": {
  "text": {"type": "string", "description": "Part of the name or the description, without case"},
  "limit": {"type": "integer", "minimum": 1, "maximum": 300, "default": 100}}})";
constexpr std::string_view kListMetricsOut = R"({"required": ["metrics", "left_out"], "properties": {
  "metrics": {"type": "array", "items": {"type": "object", "required": ["name", "type"], "properties": {
    "name": {"type": "string"}, "type": {"type": "string"}, "unit": {"type": ["string", "null"]},
    "description": {"type": ["string", "null"]}, "labels": {"type": "object"}}}},
  "left_out": {"type": "integer", "description": "Metrics beyond the limit"}}})";

constexpr std::string_view kQueryMetricIn = R"({"required": ["name", "fn"], "properties": {
  "name": {"type": "string", "description": "As list_metrics names it"},
  "fn": {"type": "string", "enum": ["rate", "increase", "last", "mean", "max", "mean_value", "p50", "p90", "p95", "p99"],
    "description": "rate, increase: of counters and histograms' counts; last, mean, max: of gauges; mean_value, p50 to p99: of histograms"},
  "by": {"type": "array", "items": {"type": "string"}, "maxItems": 8, "description": "Labels to group by"},
  "where": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 8,
    "description": "Labels with the values that they must have"},
  "points": {"type": "integer", "minimum": 1, "maximum": 300, "default": 30, "description": "Points in each series"}}})";
constexpr std::string_view kQueryMetricOut = R"({"required": ["name", "type", "fn", "series"], "properties": {
  "name": {"type": "string"}, "unit": {"type": ["string", "null"]}, "type": {"type": "string"}, "fn": {"type": "string"},
  "start": {"type": ["string", "null"], "format": "date-time"}, "step_s": {"type": "number"}, "truncated": {"type": "boolean"},
  "series": {"type": "array", "items": {"type": "object", "required": ["labels", "points"], "properties": {
    "labels": {"type": "object"}, "points": {"type": "array", "items": {"type": ["number", "null"]}}}}}}})";

constexpr std::string_view kListRunsIn = R"({"properties": {
  "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
  "offset": {"type": "integer", "minimum": 0, "maximum": 1000000, "default": 0, "description": "next_offset of the page before"}}})";
constexpr std::string_view kListRunsOut = R"({"required": ["runs", "next_offset"], "properties": {
  "runs": {"type": "array", "items": {"type": "object", "required": ["run", "base_model"], "properties": {
    "run": {"type": "string"}, "base_model": {"type": "string"}, "steps": {"type": "integer"},
    "loss": {"type": ["number", "null"]}}}},
  "next_offset": {"type": ["integer", "null"]}}})";

constexpr std::string_view kRunCurveIn = R"({"required": ["run"], "properties": {
  "run": {"type": "string", "description": "Id of a training run, as list_runs names it"},
  "after": {"type": "integer", "minimum": 0, "default": 0, "description": "Only steps after this one"},
  "points": {"type": "integer", "minimum": 1, "maximum": 500, "default": 50, "description": "Steps to return; more are thinned evenly"}}})";
constexpr std::string_view kRunCurveOut = R"({"required": ["run", "steps", "advice"], "properties": {
  "run": {"type": "object"}, "advice": {"type": "array", "items": {"type": "string"}},
  "time": {"type": "object", "description": "Where the time of the newest steps went, in seconds"},
  "steps": {"type": "array", "items": {"type": "object", "required": ["step"], "properties": {
    "step": {"type": "integer"}, "loss": {"type": ["number", "null"]}, "grad_norm": {"type": ["number", "null"]}}}}}})";

constexpr std::string_view kListTenantsOut = R"({"required": ["users"], "properties": {
  "users": {"type": "array", "items": {"type": "object", "required": ["user"], "properties": {
    "user": {"type": "string"}, "engine_share": {"type": ["number", "null"]}, "quotas": {"type": "array"}}}}}})";

constexpr std::string_view kServerStatusOut = R"({"required": ["version", "ready", "models"], "properties": {
  "version": {"type": "string"}, "ready": {"type": "boolean"}, "reason": {"type": ["string", "null"]},
  "models": {"type": "array", "items": {"type": "object", "required": ["base_model", "ready"]}},
  "telemetry_store": {"type": ["object", "null"]}}})";

constexpr std::array<Tool, 9> kTools = {{
    {.name = "find_traces",
     .title = "Find traces",
     .description =
         "Finds traces (one for each request or operation) of the last hour or another time, newest first: by "
         "session, run, sampler, request, operation, user, status, duration or text. Requests that only fetch a "
         "result are traces of their own: the name future_store.execute_operation finds those with the work.",
     .takes = Takes::kKeysAndTimes,
     .input_schema = kFindTracesIn,
     .output_schema = kFindTracesOut,
     .call = find_traces},
    {.name = "get_trace",
     .title = "Explain a trace",
     .description =
         "Returns one trace with an explanation in words of where its time went (queues behind own or others' "
         "work, prefill, decode, training phases, saving, network), its critical path, its spans and its log "
         "records.",
     .input_schema = kGetTraceIn,
     .output_schema = kGetTraceOut,
     .call = get_trace},
    {.name = "search_logs",
     .title = "Search logs",
     .description = "Finds log records of the server, its workers and users' programs, newest first.",
     .takes = Takes::kKeysAndTimes,
     .input_schema = kSearchLogsIn,
     .output_schema = kSearchLogsOut,
     .call = search_logs},
    {.name = "list_metrics",
     .title = "List metrics",
     .description = "Lists metrics with type, unit, description and the values of their labels.",
     .input_schema = kListMetricsIn,
     .output_schema = kListMetricsOut,
     .call = list_metrics},
    {.name = "query_metric",
     .title = "Query a metric",
     .description = "Computes a series over time from a metric: rates, last values or percentiles.",
     .takes = Takes::kTimes,
     .input_schema = kQueryMetricIn,
     .output_schema = kQueryMetricOut,
     .call = query_metric},
    {.name = "list_runs",
     .title = "List training runs",
     .description = "Lists training runs, the most recently used first, with their newest loss.",
     .input_schema = kListRunsIn,
     .output_schema = kListRunsOut,
     .call = list_runs},
    {.name = "run_curve",
     .title = "Curve of a training run",
     .description =
         "Returns loss, gradient norm, learning rate, tokens and times of a run's steps, where its time went, "
         "and what would make it faster.",
     .input_schema = kRunCurveIn,
     .output_schema = kRunCurveOut,
     .call = run_curve},
    {.name = "list_tenants",
     .title = "List users",
     .description = "Returns usage, quotas and shares of the engine by user. An operator gets all users, others only "
                    "themselves.",
     .input_schema = kNothingIn,
     .output_schema = kListTenantsOut,
     .call = list_tenants},
    {.name = "server_status",
     .title = "Status of the server",
     .description = "Says whether the server is healthy, what each base model does and why something waits, and what "
                    "telemetry is kept.",
     .input_schema = kNothingIn,
     .output_schema = kServerStatusOut,
     .call = server_status},
}};

Json object_schema(std::string_view members) {
  Json schema = {{"type", "object"}};
  schema.update(Json::parse(members));
  return schema;
}

}  // namespace

std::span<const Tool> tools() {
  return kTools;
}

Json input_schema(const Tool& tool) {
  Json schema = object_schema(tool.input_schema);
  Json& properties = schema["properties"];
  if (tool.takes == Takes::kKeysAndTimes) properties.update(Json::parse(kKeys));
  if (tool.takes != Takes::kOwn) properties.update(Json::parse(kTimes));
  schema["additionalProperties"] = false;
  return schema;
}

Json output_schema(const Tool& tool) {
  return object_schema(tool.output_schema);
}

const Tool* find_tool(std::string_view name) {
  const auto found = std::find_if(kTools.begin(), kTools.end(), [name](const Tool& tool) { return tool.name == name; });
  return found == kTools.end() ? nullptr : &*found;
}

}  // namespace tuft::mcp
