// What can be asked of the telemetry store, and its answers.
//
// Times are nanoseconds: since the Unix epoch for points in time. A query sees the records of one viewer: all of them,
// or those of one user. Records that belong to nobody (shared passes, the server's own work) are seen by kAll only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace tuft::telemetry_store {

// Who asks. Every query has one, so that no caller can forget it.
struct Viewer {
  bool all = false;  // an operator
  std::string user = {};
};

struct TimeRange {
  Nanos from = 0;   // inclusive
  Nanos until = 0;  // exclusive; 0: now
};

// A page of `limit` results, newest first. `cursor` is `next` of the page before; empty: the first page.
struct PageOf {
  size_t limit = 100;
  std::string cursor = {};
};

// The conditions of a search. An empty field is no condition; the conditions are joined by "and".
struct Filter {
  TimeRange time = {};
  std::string session = {}, run = {}, sampler = {}, request = {}, operation = {}, base_model = {};
  std::string user = {};
  std::string service = {};  // service.name, such as "tuft", or that of a user's own program
  // Of a span: the whole name, or its beginning before a final '*'; several between '|'. Of a log record: its event.
  std::string name = {};
  std::string text = {};   // a part of the name, of an attribute's text value, or of a log body; without case
  bool of_server = false;  // only what the server and its workers recorded, nothing of users' own programs
  std::optional<bool> failed = std::nullopt;
  std::optional<Nanos> duration_min = std::nullopt, duration_max = std::nullopt;
};

using AttributeValue = std::string;  // text, or JSON for a list; numbers and booleans as JSON writes them
struct Attribute {
  std::string key;
  AttributeValue value;
  bool is_text = true;  // false: `value` is JSON
};

struct Link {
  std::string trace_id, span_id;  // hexadecimal, here and below
  std::vector<Attribute> attributes;
};

struct Event {
  Nanos time = 0;
  std::string name;
  std::vector<Attribute> attributes;
};

struct Span {
  std::string trace_id, span_id, parent_id;  // parent_id is empty for a root
  std::string name, service, worker, scope;  // worker: the base model of the worker process; empty: the server
  std::string owner;                         // the user; empty: nobody's
  bool of_program = false;                   // of the user's own program, not of the server
  int kind = 0;                              // opentelemetry.proto.trace.v1.Span.SpanKind
  Nanos start = 0, duration = 0;
  bool failed = false;
  std::string status_message;
  std::vector<Attribute> attributes;
  std::vector<Event> events;
  std::vector<Link> links;
};

struct LogRecord {
  Nanos time = 0;
  int severity = 0;  // opentelemetry.proto.logs.v1.SeverityNumber
  std::string event, body, service, worker, scope, owner;
  std::string trace_id, span_id;  // empty: outside of spans
  std::vector<Attribute> attributes;
};

// One trace in a list. Counts include only what the viewer may see.
struct TraceSummary {
  std::string trace_id;
  std::string root_name, root_service, root_span_id;  // of the earliest span if the root is not kept
  std::string owner, session, run, sampler, request, operation, base_model;
  Nanos start = 0, duration = 0;
  uint32_t spans = 0, failed_spans = 0;
  // The newest span that met the filter. In a trace of several users: of the user with the first such span, those that
  // the server recorded before those of programs; the row is theirs.
  std::string matched_span_id, matched_name;
  Nanos matched_duration = 0;
};
struct TracePage {
  std::vector<TraceSummary> traces;
  std::string next;  // empty: this is the last page
};

// The number of spans that met a filter, by duration. Bucket i holds durations up to bounds[i]; the last has no bound.
struct DurationHistogram {
  std::vector<Nanos> bounds;
  std::vector<uint64_t> counts, failed;  // bounds.size() + 1
};

struct LinkedFrom {
  std::string trace_id, span_id, name;  // the span that has the link
  std::string to_span_id;               // the span of this trace that it names
};
struct Trace {
  std::vector<Span> spans;  // by start
  std::vector<LogRecord> logs;
  std::vector<LinkedFrom> linked_from;
  bool truncated = false;   // there are more spans than the limit, or than fit; the earliest are here
  size_t memory_bytes = 0;  // of all this, about
};

// Logs. With `after` set, records that came after that cursor, oldest first: for following. A record of a later page
// may be older.
struct LogQuery {
  Filter filter = {};
  int severity_min = 0;
  std::string trace_id = {}, span_id = {};
  PageOf page = {};
  std::string after = {};
};
// A page may have fewer records than its limit if they are long.
struct LogPage {
  std::vector<LogRecord> logs;
  std::string next;         // of older records; empty: there are none
  std::string newest;       // for LogQuery::after
  size_t memory_bytes = 0;  // of the records, about
};

// Spans as a series over time, in steps from the filter's `time.from`.
enum class SpanFunction : uint8_t {
  kCount,
  kErrors,
  kRate,
  kMean,
  kP50,
  kP95,
  kP99,
  kBusy /* sum of durations / step */
};
// Returns nothing for a word that is not one of "count", "errors", "rate", "mean", "p50", "p95", "p99", "busy".
std::optional<SpanFunction> find_span_function(std::string_view word);
// The memory that a query for a series takes at most while it runs: eight bytes for each of at most 2^23 spans, and
// half of that again while the list of them grows.
inline constexpr int64_t kSpanSeriesQueryBytes = int64_t{96} << 20;
struct SpanSeries {
  Nanos start = 0, step = 0;
  // One list for each value of the grouping key (name, operation, user, base_model or ""), in steps. NaN: no data.
  std::vector<std::pair<std::string, std::vector<double>>> series;
};

enum class MetricKind : uint8_t { kCounter, kUpDownCounter, kGauge, kHistogram };
struct MetricInfo {
  std::string name, prometheus_name, unit, description;
  MetricKind kind = MetricKind::kGauge;
  std::map<std::string, std::vector<std::string>> labels;  // key -> values seen
};
// kRate: per second, of counters and of the count of histograms. kIncrease: per step. kLast, kMean, kMax: of gauges.
// kMeanValue and kP50 ...: of the values of a histogram.
enum class MetricFunction : uint8_t { kRate, kIncrease, kLast, kMean, kMax, kMeanValue, kP50, kP90, kP95, kP99 };
// Returns nothing for a word that is not one of "rate", "increase", "last", "mean", "max", "mean_value", "p50", "p90",
// "p95", "p99".
std::optional<MetricFunction> find_metric_function(std::string_view word);
// Returns "counter", "updowncounter", "gauge" or "histogram".
std::string_view metric_kind_name(MetricKind kind);
struct MetricQuery {
  std::string name;
  MetricFunction function = MetricFunction::kLast;
  std::vector<std::string> by = {};               // label keys to group by; series of a group are added up
  std::map<std::string, std::string> where = {};  // label values that must match
  TimeRange time = {};
  Nanos step = 0;  // 0: chosen, for about 300 points
};
struct MetricSeries {
  std::map<std::string, std::string> labels;
  std::vector<double> points;  // NaN: no data
};
struct MetricAnswer {
  MetricInfo metric;
  Nanos start = 0, step = 0;
  std::vector<MetricSeries> series;
  bool truncated = false;   // there are more series than the limit
  size_t memory_bytes = 0;  // of the series: their points, as numbers and as text, and their labels
};
struct MetricExemplar {
  Nanos time = 0;
  double value = 0;
  std::string trace_id, span_id;
  std::map<std::string, std::string> labels;
};

// One optimizer step of a run, with the passes since the step before.
struct RunStep {
  std::string run = {}, owner = {};
  int64_t step = 0;  // counted from 1; 0: no step changed the weights yet, and no curve has it
  Nanos time = 0;    // its end
  double loss = 0;   // NaN: unknown
  double grad_norm = 0, learning_rate = 0;
  int64_t tokens = 0;
  // Seconds since the end of the step before: executing passes, executing the step, waiting in the server for a turn or
  // behind other work, saving; the rest is the time in which no operation of the run was there.
  double pass_seconds = 0, step_seconds = 0, wait_seconds = 0, save_seconds = 0, idle_seconds = 0;
  bool clipped = false;
};

// What the store holds and what it lost.
struct StoreState {
  bool on_disk = false;
  std::string problem;  // why nothing is on disk, or what was given up; empty: nothing
  uint64_t disk_bytes = 0, disk_bytes_max = 0, memory_bytes = 0;
  uint64_t spans = 0, logs = 0, series = 0, steps = 0;
  Nanos oldest = 0;
  uint64_t dropped_records = 0;  // because the queue was full or the disk failed
};

}  // namespace tuft::telemetry_store
