// The requests that this process is tracing, and the rooms that they share. Internal to telemetry.
//
// A request is in the shard of its id and is accessed under that shard's mutex only. Spans are started under the mutex
// (a record and a few stores) and ended outside of it, because ending one writes into a ring and may wake the telemetry
// thread: functions named take_... move objects out, and functions named end_... require that no lock is held.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "telemetry/context.h"
#include "telemetry/request_trace.h"
#include "telemetry/trace.h"

namespace tuft::telemetry::internal {

struct OpenSlice {
  Span span;
  Name name;
  bool anonymous;
};

struct ThreadTrace {
  uint64_t thread = 0;  // this_thread_key()
  Span span;
  SpanContext previous;           // the outermost slice that ended last, or the one received with the request
  std::vector<OpenSlice> slices;  // outermost first
};

struct RequestTrace {
  Span root;  // records nothing if somebody else owns the root
  SpanContext root_context;
  std::optional<uint64_t> room;
  // Wall time minus monotonic time, read once, so that the stages of a request keep their order if the clock is set.
  Nanos wall_offset = 0;
  Nanos start = 0;    // monotonic
  Nanos touched = 0;  // monotonic
  bool foreign_root = false;
  // The request was added by trace_set_proc_propagate_context(). The last thread that works for it ends it.
  bool from_elsewhere = false;
  std::vector<ThreadTrace> threads;

  // Converts a caller's time stamp (0: `now`) to monotonic time.
  Nanos monotonic(Nanos ts, Nanos now) const;
  // Returns the calling thread's entry; null if it has none.
  ThreadTrace* this_thread();
};

struct TextHash {
  using is_transparent = void;  // NOLINT(readability-identifier-naming): the standard's name
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
using Requests = std::unordered_map<std::string, RequestTrace, TextHash, std::equal_to<>>;
using RequestNode = Requests::node_type;

struct Shard {
  Mutex mutex;
  Requests requests TUFT_GUARDED_BY(mutex);
  Nanos next_sweep TUFT_GUARDED_BY(mutex) = 0;
};

Shard& shard_of(std::string_view rid);
size_t request_count();

// Returns null if `rid` exists already or the table is full; `full` tells which.
RequestTrace* add_request(Shard& shard, std::string_view rid, Nanos ts, bool& full) TUFT_REQUIRES(shard.mutex);
// Removes and returns the request; empty if there is none.
RequestNode take_request(Shard& shard, std::string_view rid) TUFT_REQUIRES(shard.mutex);
// Removes and returns the requests older than kTraceExpiry; at most once a minute per shard.
std::vector<RequestNode> take_expired(Shard& shard) TUFT_REQUIRES(shard.mutex);

// Opens the calling thread's span; returns null at the limit of threads.
ThreadTrace* open_thread(RequestTrace& request, const SpanContext& previous, Nanos start);
// Returns false at the limit of slices.
bool open_slice(ThreadTrace& thread, Name name, Nanos start, bool anonymous);

// Ends the thread's span; marks slices that are still open.
void end_thread(ThreadTrace& thread, Nanos end);
// Ends the request's threads and root, and leaves its room.
void end_request(RequestTrace& request, Nanos end);
void end_expired(std::vector<RequestNode>& requests);
// Ends every request that was idle for `idle`, sets `mark` on its spans, and removes rooms that no request entered.
size_t end_idle(Nanos idle, Name mark);

// Returns the room's span and the slice before it; makes the span, below `parent`, if the room is unknown. Returns an
// invalid context if there are too many rooms. end_request() leaves the room.
TraceProcContext enter_room(uint64_t room, const SpanContext& parent, Nanos start);
std::optional<SpanContext> room_context(uint64_t room);
// Adds a room of another server. Returns false if it is known already or there are too many.
bool add_room(uint64_t room, const TraceProcContext& context);

}  // namespace tuft::telemetry::internal
