// The embedded store of recent telemetry: spans, log records, metric series and the steps of training runs of the
// server, its workers and users' own programs. It answers the queries of the console, the terminal and assistants.
//
// It is fed with encoded OTLP requests, each once, and keeps them in segment files, limited by age and bytes; metrics
// are rings in memory. Feeding never blocks: a full queue refuses a user's request, and drops and counts what is newest
// of the server. A full disk or a damaged file costs history, never the server: the store goes on in memory and says so
// in its state and in the log. After kill -9 at most the last second is missing; of metric series, the points of the
// last 90 seconds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "telemetry_store/query.h"
#include "telemetry_store/rejections.h"

namespace tuft::telemetry_store {

struct StoreOptions {
  std::filesystem::path directory = {};  // empty: memory only
  // Of all files. Each GiB of them needs 8 MiB of the memory; with less memory less is kept.
  int64_t disk_bytes_max = int64_t{1} << 30;
  // Of metric rings, indexes and what is not yet written. What users' programs send may wait in a quarter of it more.
  int64_t memory_bytes_max = int64_t{64} << 20;
  Nanos age_max = 24 * 3600 * kSecond;
  // Returns the user of a session (tuft.session_id); empty: unknown. Called on the store's thread; must not block.
  std::function<std::string(std::string_view session)> owner_of = {};
};

enum class RecordType : uint8_t { kSpans, kLogs };

// Where records come from.
struct Source {
  std::string worker = {};  // the base model of a worker; empty: the server, or a user's program
  // Set for a user's program: all its records are this user's. A service with the name of the server's is marked.
  std::string owner = {};
};

// Thread-safe. Queries block while they read; call them on a thread that may.
class Store {
 public:
  static std::unique_ptr<Store> open(StoreOptions options, const Clock& clock);
  virtual ~Store() = default;  // writes what is queued, within a second

  // ---- feeding; none of these blocks

  // `request`: an encoded ExportTraceServiceRequest or ExportLogsServiceRequest. Returns whether it was queued. If not,
  // and it is of the server, it is lost and counted as dropped; a user's is not counted, because its sender is told.
  //
  // Each user has room for a request of request_bytes_max() or several shorter ones, and all users for four times that:
  // what one user sends costs nothing of another's, unless four fill their parts at once.
  virtual bool add(RecordType type, std::string request, const Source& source) = 0;
  // `snapshot`: an encoded ExportMetricsServiceRequest (telemetry::metrics_snapshot(): cumulative values). As add().
  virtual bool add_metrics(std::string snapshot, const Source& source) = 0;
  // Returns what it has left out of the snapshots of this owner since the last call, beside what rejected_points()
  // shows: points of more series than there is place for, or of a metric that had another kind or other bounds.
  virtual Rejections take_refused_points(const std::string& owner) = 0;
  // Returns the size of the longest request of a user's program that the queue takes: a sixteenth of memory_bytes_max.
  virtual int64_t request_bytes_max() const = 0;
  // The steps of a run come in its order. One whose number is not the highest says that the run went back to a
  // checkpoint, or that its steps are counted anew: those from this number on that it made before leave its curve.
  virtual void add_step(RunStep step) = 0;
  // Waits until everything added so far can be found. For tests and for queries that follow a change. Returns false
  // after `budget`.
  virtual bool settle(Nanos budget) = 0;

  // ---- queries

  // Finds traces with a span that meets the filter. Without `name` and `text`, only the entry spans of traces are
  // compared: those without a parent, and those of kind server or consumer.
  virtual Result<TracePage> traces(const Viewer& viewer, const Filter& filter, const PageOf& page) const = 0;
  virtual Result<DurationHistogram> durations(const Viewer& viewer, const Filter& filter) const = 0;
  // `by`: "", "name", "operation", "user" or "base_model". At most 20 groups: those with most spans.
  virtual Result<SpanSeries> span_series(const Viewer& viewer, const Filter& filter, SpanFunction function,
                                         std::string_view by, Nanos step) const = 0;
  // Returns kNotFound if the viewer can see no span of it.
  virtual Result<Trace> trace(const Viewer& viewer, std::string_view trace_id, size_t spans_max) const = 0;
  virtual Result<LogPage> logs(const Viewer& viewer, const LogQuery& query) const = 0;
  // Metrics have no owner, except that a viewer who is not an operator sees series with the label tenant=<user> only.
  virtual std::vector<MetricInfo> metrics(const Viewer& viewer) const = 0;
  virtual Result<MetricAnswer> metric(const Viewer& viewer, const MetricQuery& query) const = 0;
  virtual std::vector<MetricExemplar> exemplars(const Viewer& viewer, const MetricQuery& query) const = 0;
  // Returns at most `points` steps of a run, oldest first, thinned evenly, those after step `after`.
  virtual std::vector<RunStep> steps(const Viewer& viewer, std::string_view run, int64_t after,
                                     size_t points) const = 0;
  virtual StoreState state() const = 0;
};

}  // namespace tuft::telemetry_store
