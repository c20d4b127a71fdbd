// Request tracing: the stages of a request, on the threads and processes that worked for it. FastDeploy's tracing
// functions in C++; docs/request-tracing.md is the guide and has the table of edge cases.
//
//   process_tracing_init();                                  // once per process; reads the environment
//   trace_set_thread_info("engine", tp_rank, dp_rank);       // once per thread
//
//   trace_req_start(rid);                                    // where the request arrives
//   trace_slice_start(TraceSpanName::PREPROCESS, rid);
//   trace_slice_end(TraceSpanName::PREPROCESS, rid);
//   message.trace = trace_get_proc_propagate_context(rid).to_json();
//
//   trace_set_proc_propagate_context(rid, message.trace);    // another thread, or another process
//   trace_slice_start(TraceSpanName::PREFILL, rid);
//   trace_slice_end(TraceSpanName::PREFILL, rid, {.thread_finish = true});
//
//   trace_req_finish(rid);                                   // where it started
//
// A trace has three levels of spans: the request's root; below it one span per thread that works for the request; below
// that its slices, which may nest. A slice that starts while no other is open links to the previous one, also across
// threads and processes. Requests of several servers that share a bootstrap room are below one span of that room.
//
// Thread-safe. Recording takes the lock of one shard of the table of requests and never blocks on I/O; with telemetry
// off every call is one branch. No call fails a request: a call that makes no sense changes nothing, returns false and
// is logged, at most once a second (request_trace.misuse). Tables are bounded (kTracedRequestsMax, kTracedRoomsMax).
// Requests idle for kTraceExpiry are closed and marked tuft.trace.expired.
//
// Times are nanoseconds since 1970 (0: now), except in the last part of this header, which is for code that knows a
// span's parent and its Clock::monotonic() times and needs no table.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/result.h"
#include "telemetry/attribute.h"
#include "telemetry/context.h"
#include "telemetry/trace.h"

namespace tuft::telemetry {

inline constexpr size_t kTracedRequestsMax = 16384;
inline constexpr size_t kTracedRoomsMax = 4096;
inline constexpr size_t kTracedThreadsMax = 64;  // per request
inline constexpr size_t kTracedSlicesMax = 32;   // open at once, per thread and request
inline constexpr Nanos kTraceExpiry = 300 * kSecond;

// The names of the stages as FastDeploy documents them, so that all programs use the same spelling.
// NOLINTBEGIN(readability-identifier-naming)
enum class TraceSpanName : uint8_t { FASTDEPLOY, PREPROCESS, SCHEDULE, PREFILL, DECODE, POSTPROCESS };
// NOLINTEND(readability-identifier-naming)

Name span_name(TraceSpanName name);

// A literal, an interned Name or a TraceSpanName.
class SliceName {
 public:
  template <size_t N>
  consteval SliceName(const char (&literal)[N]) : name_(literal) {}  // NOLINT(google-explicit-constructor)
  SliceName(Name name) : name_(name) {}                              // NOLINT(google-explicit-constructor)
  SliceName(TraceSpanName name) : name_(span_name(name)) {}          // NOLINT(google-explicit-constructor)
  Name name() const { return name_; }

 private:
  Name name_;
};

// ---- processes and threads ------------------------------------------------------------------------------------------

// Starts telemetry from the environment (TRACES_ENABLE, FD_SERVICE_NAME, FD_HOST_NAME, TRACES_EXPORTER,
// EXPORTER_OTLP_ENDPOINT, EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_TRACES_PROTOCOL,
// FD_OTLP_EXPORTER_SCHEDULE_DELAY_MILLIS, FD_OTLP_EXPORTER_MAX_EXPORT_BATCH_SIZE). Does nothing if telemetry runs
// already, as in our server, or if TRACES_ENABLE is not "true". A wrong value is logged and returned, and tracing stays
// off.
Status process_tracing_init();

// Closes open requests (marked tuft.trace.unfinished), exports, and stops as shutdown_telemetry() does.
void process_tracing_shutdown(Nanos budget = 0);

// Sets the label and the ranks of the calling thread's spans. The first call wins; without a call the label is
// "unknown".
bool trace_set_thread_info(std::string_view label, std::optional<int> tp_rank = {}, std::optional<int> dp_rank = {});

// ---- requests -------------------------------------------------------------------------------------------------------

// The span above a request. The default is the calling thread's current span, if there is one.
struct TraceUpstream {
  // A running server span, which becomes the request's root. It gets the attribute `rid` and keeps its name; its owner
  // ends it. `server` is not used after the call. Set `server_context` if the span itself is not available.
  Span* server = nullptr;
  SpanContext server_context = current_context();
  // Without a server span: the traceparent of a caller, which becomes the parent of the request's own root.
  SpanContext parent = {};
};

// Makes the root span "<role> Req <rid>", or takes the upstream server span, and makes the calling thread's span. With
// a room, both are below the span "Bootstrap Room 0x<room>", which is made here unless the room is known. Returns false
// if `rid` is traced already (nothing changes) or the table is full (counted in tuft.telemetry.dropped).
bool trace_req_start(std::string_view rid, std::optional<uint64_t> bootstrap_room = {}, Nanos ts = 0,
                     std::string_view role = {}, const TraceUpstream& upstream = {});

// Ends the request's open spans (slices are marked tuft.trace.unfinished), sets the attributes on the root, or on the
// thread's span if the root has another owner, and forgets the request. Returns false for an unknown request.
bool trace_req_finish(std::string_view rid, Nanos ts = 0, Attributes attributes = {});

// Ends a request that failed or was cancelled: also sets status ERROR with `reason` on its thread spans and its root.
bool trace_req_abort(std::string_view rid, std::string_view reason, Nanos ts = 0, Attributes attributes = {});

// ---- slices ---------------------------------------------------------------------------------------------------------

struct SliceStart {
  Nanos ts = 0;
  // The slice gets its name when it ends.
  bool anonymous = false;
};

struct SliceEnd {
  Nanos ts = 0;
  Attributes attributes = {};
  // Opens an anonymous slice at the end of this one.
  bool auto_next_anon = false;
  // Ends the thread's span too, because this is its last slice for the request. For a request that started elsewhere,
  // the last thread also removes the request.
  bool thread_finish = false;
};

// Starts a slice below the thread's innermost open slice, else below the thread's span, which is made if there is none.
// Returns false for an unknown request or at a limit.
bool trace_slice_start(SliceName name, std::string_view rid, const SliceStart& options = {});

// Ends the thread's innermost slice. A name other than the one it started with sets status ERROR. Returns false if none
// is open.
bool trace_slice_end(SliceName name, std::string_view rid, const SliceEnd& options = {});

// Reports a slice that has ended.
bool trace_report_span(SliceName name, std::string_view rid, Nanos start_ts, Nanos end_ts, Attributes attributes = {},
                       bool thread_finish = false);

// Adds an event to the innermost open slice, else to the thread's span. Returns false if the thread has neither.
bool trace_event(Name name, std::string_view rid, Nanos ts = 0, Attributes attributes = {});
// Sets attributes on the innermost open slice. Returns false if none is open.
bool trace_slice_add_attr(std::string_view rid, Attributes attributes);

struct TraceBatchItem {
  std::string_view rid;
  bool finished = false;
};
// Ends one slice per request. An unfinished request continues with an anonymous slice; for a finished one the thread's
// span ends.
void trace_slice_batch(SliceName name, std::span<const TraceBatchItem> items, Nanos ts = 0);
// Adds one event per request, with `bid`, which is the same for all, and `batch_size`.
void trace_event_batch(Name name, std::span<const TraceBatchItem> items, Nanos ts = 0);

// A slice that lasts until the end of the scope.
class TraceSlice {
 public:
  TraceSlice(SliceName name, std::string_view rid) : name_(name), rid_(rid), open_(trace_slice_start(name, rid)) {}
  ~TraceSlice() {
    if (open_) trace_slice_end(name_, rid_);
  }
  TraceSlice(const TraceSlice&) = delete;
  TraceSlice& operator=(const TraceSlice&) = delete;

 private:
  SliceName name_;
  std::string_view rid_;  // must outlive the slice
  bool open_;
};

// ---- from thread to thread, from process to process -----------------------------------------------------------------

// The root of a request and the slice that precedes the next one.
struct TraceProcContext {
  SpanContext root;
  SpanContext previous;

  bool valid() const { return root.valid(); }
  // Returns {"root_span": {"traceparent": "..."}, "prev_span": {"span_id": n, "trace_id": n}}, FastDeploy's format;
  // prev_span is "None" if there is none. Returns "" for an invalid context.
  std::string to_json() const;
  // Parses this format. Returns an invalid context for any other text, including "" and "None". Malformed text is
  // counted in tuft.telemetry.context.malformed.
  static TraceProcContext from_json(std::string_view text);
};

// Returns the calling thread's context. `previous` is its outermost open slice, else the last slice that ended; invalid
// if the thread has no span of the request. Returns an invalid context for an unknown request.
TraceProcContext trace_get_proc_propagate_context(std::string_view rid);

// Makes the calling thread's span below that root; its first slice links to `previous`. The first call for a thread
// wins. Returns false if it was not the first, the context is invalid, or a limit is reached.
bool trace_set_proc_propagate_context(std::string_view rid, const TraceProcContext& context, Nanos ts = 0);
bool trace_set_proc_propagate_context(std::string_view rid, std::string_view json, Nanos ts = 0);

// Returns the room spans of these requests for another server, as base64 of JSON by room, for an HTTP header
// (kTraceHeader). Leaves out requests that are unknown or have no room; returns "" if none is left.
std::string trace_get_remote_propagate_context(std::span<const std::string_view> rids);
// Places requests that start with one of these rooms below the other server's span. Ignores "" and "None"; counts
// malformed text. Returns false if nothing was taken.
bool trace_set_remote_propagate_context(std::string_view base64);
inline constexpr std::string_view kTraceHeader = "trace_context";

// ---- for logs and housekeeping --------------------------------------------------------------------------------------

// Returns the calling thread's innermost open span of the request, else its root, for ContextScope: log records inside
// carry its ids. If a multi-choice id "<rid>::n::<i>" is unknown, "<rid>" is used. Invalid for an unknown request.
SpanContext trace_context(std::string_view rid);

struct TraceInfo {
  std::string trace_id;  // 32 hex digits
  std::string span_id;   // 16 hex digits
};
std::optional<TraceInfo> get_trace_info(std::string_view rid);

// Closes requests that were idle for `idle`, at the time of their last use; returns their number. Starting a request
// does this for its own shard, at most once a minute.
size_t trace_sweep(Nanos idle = kTraceExpiry);
size_t traced_requests();

// ---- spans with a known parent, in Clock::monotonic() times ---------------------------------------------------------

struct TraceStage {
  SliceName name;
  Nanos start;
  Nanos end;
  Attributes attributes = {};
};

// Reports a span that has ended. Returns its context, to be the parent of others or the `previous` of the next.
SpanContext report_stage(const SpanContext& parent, const TraceStage& stage, const SpanContext& previous = {});

// Reports the calling thread's span of a request, with label, ranks, host and id. Call it before reporting stages.
SpanContext report_thread_span(const SpanContext& root, Nanos start, Nanos end, Attributes attributes = {});

// A stage that is running, below a span of the calling thread. Both end with the object.
class RunningStage {
 public:
  RunningStage(Span row, Span stage) : row_(std::move(row)), stage_(std::move(stage)) {}

  // Returns the stage's context, to be the `previous` of the next one.
  const SpanContext& context() const { return stage_.context(); }
  // Shares the keys of `work` (Span::share()), for a stage in which the work came into being.
  void share(const SpanContext& work);
  // Ends both at `at`; 0: now.
  void end(Nanos at = 0);

 private:
  Span row_;  // destroyed last, so that it does not end before its stage
  Span stage_;
};

// Starts a stage that precedes others, for code that must tell them its context before it ends.
RunningStage start_stage(const SpanContext& root, SliceName name, Nanos start);

// Reports a thread span from the first stage's start to the last stage's end, and the stages below it. Each stage links
// to the one before, the first to `previous`. Returns the last stage's context, for the next process to link to;
// `previous` if there are no stages.
SpanContext report_stages(const SpanContext& root, std::span<const TraceStage> stages, const SpanContext& previous = {},
                          Attributes row_attributes = {});

}  // namespace tuft::telemetry
