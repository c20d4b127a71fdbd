#include "telemetry/request_trace.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include "base/id.h"
#include "telemetry/instruments/health.h"
#include "telemetry/log.h"
#include "telemetry/propagation/trace_carrier.h"
#include "telemetry/record/recorder.h"
#include "telemetry/record/recording.h"
#include "telemetry/request/request_table.h"
#include "telemetry/request/trace_thread.h"

namespace tuft::telemetry {
namespace {

using internal::OpenSlice;
using internal::RequestNode;
using internal::RequestTrace;
using internal::Shard;
using internal::ThreadTrace;

Nanos monotonic_now() {
  return system_clock().monotonic();
}

// A caller that is wrong once is wrong for every request, so one line a second is logged and the rest is counted.
void log_misuse(std::string_view what, std::string_view rid) {
  static std::atomic<Nanos> next_line{0};
  Nanos next = next_line.load(std::memory_order_relaxed);
  const Nanos now = monotonic_now();
  if (now < next || !next_line.compare_exchange_strong(next, now + kSecond)) {
    count_suppressed_log("request_trace.misuse");
    return;
  }
  log_warning("request_trace.misuse", what, {{"rid", rid}});
}

enum class Outcome : uint8_t { kDone, kUnknown, kNoSlice, kNoSpan, kOtherName, kLimit, kTableFull };

// Reports the result of a call. Requires that no lock is held.
bool tell(Outcome outcome, std::string_view rid) {
  switch (outcome) {
    case Outcome::kDone:
      return true;
    case Outcome::kUnknown:
      return false;
    case Outcome::kNoSlice:
      log_misuse("no slice of the request is open on this thread", rid);
      return false;
    case Outcome::kNoSpan:
      log_misuse("this thread has no span of the request", rid);
      return false;
    case Outcome::kOtherName:
      log_misuse("a slice was ended under a name other than the one that it was started with", rid);
      return true;
    case Outcome::kLimit:
      internal::count_dropped(internal::kSpanType, "request_limit", 1);
      return false;
    case Outcome::kTableFull:
      internal::count_dropped(internal::kSpanType, "request_table_full", 1);
      return false;
  }
  return false;
}

// Runs `act(request, now)` under the lock if the request exists.
template <typename Act>
bool with_request(std::string_view rid, const Act& act) {
  if (!internal::recording()) return false;
  Outcome outcome = Outcome::kUnknown;
  {
    Shard& shard = internal::shard_of(rid);
    MutexLock lock(shard.mutex);
    const auto found = shard.requests.find(rid);
    if (found == shard.requests.end()) return false;
    RequestTrace& request = found->second;
    request.touched = monotonic_now();
    outcome = act(request, request.touched);
  }
  return tell(outcome, rid);
}

// ---- requests

void open_root(RequestTrace& request, std::string_view rid, std::string_view role, const SpanContext& parent) {
  request.root = internal::request_tracer().start_span(
      "Req", {.attributes = {{"rid", rid}}, .parent = parent, .kind = SpanKind::kServer, .start = request.start});
  request.root_context = request.root.context();
  if (!request.root.recording()) return;
  std::string name(role);
  if (!name.empty()) name += ' ';
  request.root.set_dynamic_name(name.append("Req ").append(rid));
}

void fill_request(RequestTrace& request, std::string_view rid, std::optional<uint64_t> room, std::string_view role,
                  const TraceUpstream& upstream) {
  const SpanContext& server = upstream.server != nullptr ? upstream.server->context() : upstream.server_context;
  const SpanContext& above = server.valid() ? server : upstream.parent;
  TraceProcContext entered;
  if (room) entered = internal::enter_room(*room, above, request.start);
  if (entered.valid()) {
    request.room = room;
    open_root(request, rid, role, entered.root);
  } else if (server.valid()) {
    request.root_context = server;
    request.foreign_root = true;
  } else {
    open_root(request, rid, role, upstream.parent);
  }
  internal::open_thread(request, entered.previous, request.start);
}

// If somebody else owns the root, the request's attributes go to this thread's span, or else to any thread's.
Span& span_for_attributes(RequestTrace& request) {
  if (!request.foreign_root || request.threads.empty()) return request.root;
  ThreadTrace* thread = request.this_thread();
  return thread != nullptr ? thread->span : request.threads.front().span;
}

bool finish_request(std::string_view rid, Nanos ts, Attributes attributes, const Error* error) {
  if (!internal::recording()) return false;
  RequestNode node;
  {
    Shard& shard = internal::shard_of(rid);
    MutexLock lock(shard.mutex);
    node = internal::take_request(shard, rid);
  }
  if (node.empty()) return false;
  RequestTrace& request = node.mapped();
  span_for_attributes(request).set_attributes(attributes);
  if (error != nullptr) {
    for (ThreadTrace& thread : request.threads) thread.span.record_error(*error);
    request.root.record_error(*error);
  }
  internal::end_request(request, request.monotonic(ts, monotonic_now()));
  return true;
}

// ---- slices

// Spans to be ended without a lock after a slice has ended.
struct EndedSlice {
  std::optional<OpenSlice> slice;
  std::optional<ThreadTrace> thread;
  RequestNode request;
  Nanos at = 0;
};

Outcome start_slice(RequestTrace& request, Name name, Nanos start, bool anonymous) {
  ThreadTrace* thread = request.this_thread();
  if (thread == nullptr) thread = internal::open_thread(request, {}, start);
  const bool opened = thread != nullptr && internal::open_slice(*thread, name, start, anonymous);
  return opened ? Outcome::kDone : Outcome::kLimit;
}

Outcome take_slice(RequestTrace& request, const SliceEnd& options, EndedSlice& ended) {
  ThreadTrace* thread = request.this_thread();
  if (thread == nullptr || thread->slices.empty()) return Outcome::kNoSlice;
  request.touched = monotonic_now();
  ended.at = request.monotonic(options.ts, request.touched);
  ended.slice = std::move(thread->slices.back());
  thread->slices.pop_back();
  if (thread->slices.empty()) thread->previous = ended.slice->span.context();
  if (options.thread_finish) {
    ended.thread = std::move(*thread);
    request.threads.erase(request.threads.begin() + (thread - request.threads.data()));
  } else if (options.auto_next_anon) {
    internal::open_slice(*thread, "anonymous", ended.at, true);
  }
  return Outcome::kDone;
}

bool end_slice(EndedSlice& ended, Name name, Attributes attributes) {
  OpenSlice& slice = *ended.slice;
  const bool other_name = !slice.anonymous && slice.name != name;
  if (slice.anonymous) slice.span.update_name(name);
  slice.span.set_attributes(attributes);
  if (other_name) {
    slice.span.record_error(
        {ErrorCode::kFailedPrecondition, "ended as '" + std::string(name.view()) + "'", "slice_name_mismatch"});
  }
  slice.span.end(ended.at);
  if (ended.thread) internal::end_thread(*ended.thread, ended.at);
  if (!ended.request.empty()) internal::end_request(ended.request.mapped(), ended.at);
  return other_name;
}

std::string_view base_rid(std::string_view rid) {
  const size_t choice = rid.rfind("::n::");
  return choice == std::string_view::npos ? rid : rid.substr(0, choice);
}

SpanContext innermost_context(std::string_view rid) {
  SpanContext context;
  with_request(rid, [&](RequestTrace& request, Nanos) {
    const ThreadTrace* thread = request.this_thread();
    if (thread == nullptr) {
      context = request.root_context;
    } else {
      context = thread->slices.empty() ? thread->span.context() : thread->slices.back().span.context();
    }
    return Outcome::kDone;
  });
  return context;
}

}  // namespace

Name span_name(TraceSpanName name) {
  switch (name) {
    case TraceSpanName::FASTDEPLOY:
      return "FASTDEPLOY";
    case TraceSpanName::PREPROCESS:
      return "PREPROCESS";
    case TraceSpanName::SCHEDULE:
      return "SCHEDULE";
    case TraceSpanName::PREFILL:
      return "PREFILL";
    case TraceSpanName::DECODE:
      return "DECODE";
    case TraceSpanName::POSTPROCESS:
      return "POSTPROCESS";
  }
  return "unknown";
}

bool trace_set_thread_info(std::string_view label, std::optional<int> tp_rank, std::optional<int> dp_rank) {
  return internal::recording() && internal::set_thread_info(label, tp_rank, dp_rank);
}

bool trace_req_start(std::string_view rid, std::optional<uint64_t> bootstrap_room, Nanos ts, std::string_view role,
                     const TraceUpstream& upstream) {
  if (!internal::recording()) return false;
  if (upstream.server != nullptr) upstream.server->set_attribute("rid", rid);
  std::vector<RequestNode> expired;
  bool full = false;
  bool started = false;
  {
    Shard& shard = internal::shard_of(rid);
    MutexLock lock(shard.mutex);
    expired = internal::take_expired(shard);
    if (RequestTrace* request = internal::add_request(shard, rid, ts, full)) {
      fill_request(*request, rid, bootstrap_room, role, upstream);
      started = true;
    }
  }
  internal::end_expired(expired);
  return tell(full ? Outcome::kTableFull : started ? Outcome::kDone : Outcome::kUnknown, rid);
}

bool trace_req_finish(std::string_view rid, Nanos ts, Attributes attributes) {
  return finish_request(rid, ts, attributes, nullptr);
}

bool trace_req_abort(std::string_view rid, std::string_view reason, Nanos ts, Attributes attributes) {
  if (!internal::recording()) return false;
  const Error error{ErrorCode::kCancelled, std::string(reason), {}};
  return finish_request(rid, ts, attributes, &error);
}

bool trace_slice_start(SliceName name, std::string_view rid, const SliceStart& options) {
  return with_request(rid, [&](RequestTrace& request, Nanos now) {
    return start_slice(request, name.name(), request.monotonic(options.ts, now), options.anonymous);
  });
}

bool trace_slice_end(SliceName name, std::string_view rid, const SliceEnd& options) {
  if (!internal::recording()) return false;
  EndedSlice ended;
  Outcome outcome = Outcome::kUnknown;
  {
    Shard& shard = internal::shard_of(rid);
    MutexLock lock(shard.mutex);
    const auto found = shard.requests.find(rid);
    if (found == shard.requests.end()) return false;
    RequestTrace& request = found->second;
    outcome = take_slice(request, options, ended);
    if (ended.thread && request.from_elsewhere && request.threads.empty())
      ended.request = internal::take_request(shard, rid);
  }
  if (outcome == Outcome::kDone && end_slice(ended, name.name(), options.attributes)) outcome = Outcome::kOtherName;
  return tell(outcome, rid);
}

bool trace_report_span(SliceName name, std::string_view rid, Nanos start_ts, Nanos end_ts, Attributes attributes,
                       bool thread_finish) {
  return trace_slice_start(name, rid, {.ts = start_ts}) &&
         trace_slice_end(name, rid, {.ts = end_ts, .attributes = attributes, .thread_finish = thread_finish});
}

bool trace_event(Name name, std::string_view rid, Nanos ts, Attributes attributes) {
  return with_request(rid, [&](RequestTrace& request, Nanos now) {
    ThreadTrace* thread = request.this_thread();
    if (thread == nullptr) return Outcome::kNoSpan;
    Span& span = thread->slices.empty() ? thread->span : thread->slices.back().span;
    span.add_event(name, attributes, request.monotonic(ts, now));
    return Outcome::kDone;
  });
}

bool trace_slice_add_attr(std::string_view rid, Attributes attributes) {
  return with_request(rid, [&](RequestTrace& request, Nanos) {
    ThreadTrace* thread = request.this_thread();
    if (thread == nullptr || thread->slices.empty()) return Outcome::kNoSlice;
    thread->slices.back().span.set_attributes(attributes);
    return Outcome::kDone;
  });
}

void trace_slice_batch(SliceName name, std::span<const TraceBatchItem> items, Nanos ts) {
  for (const TraceBatchItem& item : items)
    trace_slice_end(name, item.rid, {.ts = ts, .auto_next_anon = !item.finished, .thread_finish = item.finished});
}

void trace_event_batch(Name name, std::span<const TraceBatchItem> items, Nanos ts) {
  if (!internal::recording()) return;
  const std::string batch = random_uuid().substr(0, 8);
  for (const TraceBatchItem& item : items)
    trace_event(name, item.rid, ts, {{"bid", batch}, {"batch_size", items.size()}});
}

TraceProcContext trace_get_proc_propagate_context(std::string_view rid) {
  TraceProcContext context;
  with_request(rid, [&](RequestTrace& request, Nanos) {
    context.root = request.root_context;
    if (const ThreadTrace* thread = request.this_thread())
      context.previous = thread->slices.empty() ? thread->previous : thread->slices.front().span.context();
    return Outcome::kDone;
  });
  return context;
}

bool trace_set_proc_propagate_context(std::string_view rid, const TraceProcContext& context, Nanos ts) {
  if (!internal::recording() || !context.valid()) return false;
  std::vector<RequestNode> expired;
  bool full = false;
  bool opened = false;
  bool known_thread = false;
  {
    Shard& shard = internal::shard_of(rid);
    MutexLock lock(shard.mutex);
    expired = internal::take_expired(shard);
    RequestTrace* request = internal::add_request(shard, rid, ts, full);
    if (request != nullptr) {
      request->root_context = context.root;
      request->foreign_root = request->from_elsewhere = true;
    } else if (const auto found = shard.requests.find(rid); found != shard.requests.end()) {
      request = &found->second;
      full = false;
      request->touched = monotonic_now();
    }
    if (request != nullptr) {
      known_thread = request->this_thread() != nullptr;
      opened = !known_thread &&
               internal::open_thread(*request, context.previous, request->monotonic(ts, request->touched)) != nullptr;
    }
  }
  internal::end_expired(expired);
  if (known_thread) return false;
  return tell(opened ? Outcome::kDone : full ? Outcome::kTableFull : Outcome::kLimit, rid);
}

bool trace_set_proc_propagate_context(std::string_view rid, std::string_view json, Nanos ts) {
  return internal::recording() && trace_set_proc_propagate_context(rid, TraceProcContext::from_json(json), ts);
}

std::string trace_get_remote_propagate_context(std::span<const std::string_view> rids) {
  if (!internal::recording()) return {};
  std::map<uint64_t, TraceProcContext> by_room;
  for (const std::string_view rid : rids) {
    TraceProcContext context = trace_get_proc_propagate_context(rid);
    std::optional<uint64_t> room;
    with_request(rid, [&](RequestTrace& request, Nanos) {
      room = request.room;
      return Outcome::kDone;
    });
    if (!room) continue;
    const auto root = internal::room_context(*room);
    if (!root) continue;
    context.root = *root;
    by_room[*room] = context;
  }
  return internal::to_remote_carrier(by_room);
}

bool trace_set_remote_propagate_context(std::string_view base64) {
  if (!internal::recording()) return false;
  bool taken = false;
  for (const auto& [room, context] : internal::from_remote_carrier(base64))
    taken = internal::add_room(room, context) || taken;
  return taken;
}

SpanContext trace_context(std::string_view rid) {
  const SpanContext context = innermost_context(rid);
  const std::string_view base = base_rid(rid);
  return context.valid() || base == rid ? context : innermost_context(base);
}

std::optional<TraceInfo> get_trace_info(std::string_view rid) {
  const SpanContext context = trace_context(rid);
  if (!context.valid()) return std::nullopt;
  return TraceInfo{context.trace_id_hex(), context.span_id_hex()};
}

size_t trace_sweep(Nanos idle) {
  return internal::end_idle(idle, "tuft.trace.expired");
}

size_t traced_requests() {
  return internal::request_count();
}

SpanContext report_stage(const SpanContext& parent, const TraceStage& stage, const SpanContext& previous) {
  Span span = internal::request_tracer().start_span(
      stage.name.name(), {.attributes = stage.attributes, .parent = parent, .link = previous, .start = stage.start});
  const SpanContext context = span.context();
  span.end(stage.end);
  return context;
}

SpanContext report_thread_span(const SpanContext& root, Nanos start, Nanos end, Attributes attributes) {
  if (!internal::recording()) return root;
  Span span = internal::start_thread_span(root, start);
  span.set_attributes(attributes);
  const SpanContext context = span.context();
  span.end(end);
  return context;
}

void RunningStage::share(const SpanContext& work) {
  row_.share(work);
  stage_.share(work);
}

void RunningStage::end(Nanos at) {
  stage_.end(at);
  row_.end(at);
}

RunningStage start_stage(const SpanContext& root, SliceName name, Nanos start) {
  if (!internal::recording()) return {Span(), Span()};
  Span row = internal::start_thread_span(root, start);
  Span stage = internal::request_tracer().start_span(name.name(), {.parent = row.context(), .start = start});
  return {std::move(row), std::move(stage)};
}

SpanContext report_stages(const SpanContext& root, std::span<const TraceStage> stages, const SpanContext& previous,
                          Attributes row_attributes) {
  if (stages.empty() || !internal::recording()) return previous;
  Nanos start = stages.front().start;
  Nanos end = stages.front().end;
  for (const TraceStage& stage : stages) {
    start = std::min(start, stage.start);
    end = std::max(end, stage.end);
  }
  const SpanContext row = report_thread_span(root, start, end, row_attributes);
  SpanContext last = previous;
  for (const TraceStage& stage : stages) last = report_stage(row, stage, last);
  return last;
}

}  // namespace tuft::telemetry
