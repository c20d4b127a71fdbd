// Request tracing: which stages a request went through, on which threads of which processes. FastDeploy's tracing
// functions in C++; docs/request-tracing.md is the guide and holds the table of edge cases.
//
//   process_tracing_init();                                  // once a process, reads the environment
//   trace_set_thread_info("engine", tp_rank, dp_rank);       // once a thread
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
// Three levels of spans: the request's root, below it one span a thread that works for it, below that its slices, which
// may nest. A slice that starts with none open links to the one before it, also across threads and processes. Requests
// of several servers that share a bootstrap room hang below one span of that room.
//
// Thread-safe. Recording takes the lock of one shard of the table of requests and never blocks on I/O; with telemetry
// off every call is one branch. No call ever fails a request: what makes no sense changes nothing, returns false and is
// logged at most once a second (request_trace.misuse). Tables are bounded (kTracedRequestsMax, kTracedRoomsMax);
// requests that nobody touched for kTraceExpiry are closed, marked tuft.trace.expired.
//
// Times of this first part are nanoseconds since 1970 (0: now). The last part of this header has functions for code
// that knows a span's parent and its Clock::monotonic() times, and needs no table.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "telemetry/attribute.h"
#include "telemetry/context.h"
#include "telemetry/trace.h"

namespace tuft::telemetry {

inline constexpr size_t kTracedRequestsMax = 16384;
inline constexpr size_t kTracedRoomsMax = 4096;
inline constexpr size_t kTracedThreadsMax = 64;  // of one request
inline constexpr size_t kTracedSlicesMax = 32;   // open at once on one thread of one request
inline constexpr Nanos kTraceExpiry = 300 * kSecond;

// Names of stages, so that every program spells them alike.
// NOLINTBEGIN(readability-identifier-naming): spelt as FastDeploy documents them
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

// Starts telemetry as the environment says (TRACES_ENABLE, FD_SERVICE_NAME, FD_HOST_NAME, TRACES_EXPORTER,
// EXPORTER_OTLP_ENDPOINT, EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_TRACES_PROTOCOL,
// FD_OTLP_EXPORTER_SCHEDULE_DELAY_MILLIS, FD_OTLP_EXPORTER_MAX_EXPORT_BATCH_SIZE). Does nothing where telemetry runs
// already (our server) or TRACES_ENABLE is not "true". A wrong value is logged and returned, and tracing stays off.
Status process_tracing_init();

// Closes the requests that are still open (marked tuft.trace.unfinished), exports and stops as shutdown_telemetry().
void process_tracing_shutdown(Nanos budget = 0);

// The label and ranks of the calling thread's spans; the first call wins. A thread that never called it is "unknown".
bool trace_set_thread_info(std::string_view label, std::optional<int> tp_rank = {}, std::optional<int> dp_rank = {});

// ---- requests -------------------------------------------------------------------------------------------------------

// What a request hangs below. By default the calling thread's current span, where there is one.
struct TraceUpstream {
  // A running server span: it IS the request's root. It gets the attribute `rid`, keeps its name and is ended by its
  // owner. `server` is not kept after the call; `server_context` is for a span that is not at hand.
  Span* server = nullptr;
  SpanContext server_context = current_context();
  // Without a server span: a caller's traceparent, the parent of the request's own root.
  SpanContext parent = {};
};

// Makes the root span "<role> Req <rid>" (or takes the upstream server span) and the calling thread's span. With a
// room, both hang below the span "Bootstrap Room 0x<room>", which is made here unless the room is known.
// False: `rid` is traced already (nothing changes), or the table is full (counted in tuft.telemetry.dropped).
bool trace_req_start(std::string_view rid, std::optional<uint64_t> bootstrap_room = {}, Nanos ts = 0,
                     std::string_view role = {}, const TraceUpstream& upstream = {});

// Ends what is open (slices are marked tuft.trace.unfinished), sets the attributes on the root - on the thread's span
// where the root is not ours - and forgets the request. False for an unknown one.
bool trace_req_finish(std::string_view rid, Nanos ts = 0, Attributes attributes = {});

// The same for a request that failed or was given up: its thread spans and root get status ERROR with `reason`.
bool trace_req_abort(std::string_view rid, std::string_view reason, Nanos ts = 0, Attributes attributes = {});

// ---- slices ---------------------------------------------------------------------------------------------------------

struct SliceStart {
  Nanos ts = 0;
  // Its name is given when it ends.
  bool anonymous = false;
};

struct SliceEnd {
  Nanos ts = 0;
  Attributes attributes = {};
  // Opens an anonymous slice at the same time.
  bool auto_next_anon = false;
  // This was the thread's last slice for the request: ends the thread's span. The last thread of a request that
  // started elsewhere takes the request with it.
  bool thread_finish = false;
};

// Below the thread's innermost open slice, else below its span, which is made where the thread has none yet.
// False: unknown request, or a limit.
bool trace_slice_start(SliceName name, std::string_view rid, const SliceStart& options = {});

// Ends the thread's innermost slice. Another name than it started with makes it an ERROR. False: none is open.
bool trace_slice_end(SliceName name, std::string_view rid, const SliceEnd& options = {});

// A slice reported after it ended.
bool trace_report_span(SliceName name, std::string_view rid, Nanos start_ts, Nanos end_ts, Attributes attributes = {},
                       bool thread_finish = false);

// On the innermost open slice, else on the thread's span. False: the thread has neither.
bool trace_event(Name name, std::string_view rid, Nanos ts = 0, Attributes attributes = {});
// On the innermost open slice. False: none is open.
bool trace_slice_add_attr(std::string_view rid, Attributes attributes);

struct TraceBatchItem {
  std::string_view rid;
  bool finished = false;
};
// One slice end a request: the next slice follows at once where it is not finished, else the thread is done with it.
void trace_slice_batch(SliceName name, std::span<const TraceBatchItem> items, Nanos ts = 0);
// One event a request, with `bid`, the same for all, and `batch_size`.
void trace_event_batch(Name name, std::span<const TraceBatchItem> items, Nanos ts = 0);

// A slice as long as the scope.
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
  std::string_view rid_;  // outlives the slice
  bool open_;
};

// ---- from thread to thread, from process to process -----------------------------------------------------------------

// The root of a request and the slice before the next one.
struct TraceProcContext {
  SpanContext root;
  SpanContext previous;

  bool valid() const { return root.valid(); }
  // {"root_span": {"traceparent": "..."}, "prev_span": {"span_id": n, "trace_id": n}}, as FastDeploy sends it;
  // prev_span is "None" where there is none. "" for an invalid one.
  std::string to_json() const;
  // Invalid for anything else, also for "" and "None". Malformed text is counted in tuft.telemetry.context.malformed.
  static TraceProcContext from_json(std::string_view text);
};

// For the calling thread: `previous` is its outermost open slice, else the last one that ended; none where the thread
// has no span of the request. Invalid for an unknown request.
TraceProcContext trace_get_proc_propagate_context(std::string_view rid);

// Makes the calling thread's span below that root; its first slice links to `previous`. The first call for a thread
// wins. False: it was not the first, the context is invalid, or a limit.
bool trace_set_proc_propagate_context(std::string_view rid, const TraceProcContext& context, Nanos ts = 0);
bool trace_set_proc_propagate_context(std::string_view rid, std::string_view json, Nanos ts = 0);

// For another server: the room spans of these requests as base64 of JSON by room, for an HTTP header (kTraceHeader).
// Requests that are unknown or have no room are left out; "" where none is left.
std::string trace_get_remote_propagate_context(std::span<const std::string_view> rids);
// Requests that start with one of these rooms hang below the other server's span. "" and "None" are ignored; malformed
// text is counted. False: nothing was taken.
bool trace_set_remote_propagate_context(std::string_view base64);
inline constexpr std::string_view kTraceHeader = "trace_context";

// ---- for logs and housekeeping --------------------------------------------------------------------------------------

// The calling thread's innermost open span of the request, else its root. A multi-choice id "<rid>::n::<i>" that is
// unknown is looked up as "<rid>". Invalid for an unknown request. For ContextScope: logs inside it carry the ids.
SpanContext trace_context(std::string_view rid);

struct TraceInfo {
  std::string trace_id;  // 32 hex digits
  std::string span_id;   // 16 hex digits
};
std::optional<TraceInfo> get_trace_info(std::string_view rid);

// Closes requests that nobody touched for `idle`, at the time of their last touch; returns how many. Starting requests
// does it by itself for its shard, at most once a minute.
size_t trace_sweep(Nanos idle = kTraceExpiry);
size_t traced_requests();

// ---- spans with a known parent, in Clock::monotonic() times ---------------------------------------------------------

struct TraceStage {
  SliceName name;
  Nanos start;
  Nanos end;
  Attributes attributes = {};
};

// One span that is over. Returns its context: the parent of others, or the `previous` of the next.
SpanContext report_stage(const SpanContext& parent, const TraceStage& stage, const SpanContext& previous = {});

// The calling thread's row of a request: a span with its label, ranks, host and id. Report it before its stages.
SpanContext report_thread_span(const SpanContext& root, Nanos start, Nanos end, Attributes attributes = {});

// A row from the first stage's start to the last one's end and the stages in it, each linked to the one before and the
// first to `previous`. Returns the last stage's context, which the next process links to; `previous` where there are
// no stages.
SpanContext report_stages(const SpanContext& root, std::span<const TraceStage> stages, const SpanContext& previous = {},
                          Attributes row_attributes = {});

}  // namespace tuft::telemetry
