// The requests that this process traces now, and the rooms that they share. Internal to telemetry.
//
// A request lies in the shard of its id and is touched under that shard's mutex only. Spans are started under it (an
// own record and a few stores) and ended outside of it, for ending writes into a ring and may wake the telemetry
// thread: functions called take_... move things out, functions called end_... want no lock held.
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
  SpanContext previous;           // the outermost slice that ended last, or came with the request
  std::vector<OpenSlice> slices;  // outermost first
};

struct RequestTrace {
  Span root;  // records nothing where the root belongs to somebody else
  SpanContext root_context;
  std::optional<uint64_t> room;
  // Wall minus monotonic time, read once: the stages of a request keep their order when somebody sets the clock.
  Nanos wall_offset = 0;
  Nanos start = 0;    // monotonic
  Nanos touched = 0;  // monotonic
  bool foreign_root = false;
  // It came by trace_set_proc_propagate_context(); nobody here will finish it but its last thread.
  bool from_elsewhere = false;
  std::vector<ThreadTrace> threads;

  // A caller's time stamp (0: `now`) as monotonic time.
  Nanos monotonic(Nanos ts, Nanos now) const;
  // The calling thread's; null where it has none.
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

// Null where `rid` is there already or the table is full, which `full` says.
RequestTrace* add_request(Shard& shard, std::string_view rid, Nanos ts, bool& full) TUFT_REQUIRES(shard.mutex);
// Empty where there is none.
RequestNode take_request(Shard& shard, std::string_view rid) TUFT_REQUIRES(shard.mutex);
// What kTraceExpiry has passed for, at most once a minute a shard.
std::vector<RequestNode> take_expired(Shard& shard) TUFT_REQUIRES(shard.mutex);

// The calling thread's span; null at the limit of threads.
ThreadTrace* open_thread(RequestTrace& request, const SpanContext& previous, Nanos start);
// False at the limit of slices.
bool open_slice(ThreadTrace& thread, Name name, Nanos start, bool anonymous);

// Open slices are marked.
void end_thread(ThreadTrace& thread, Nanos end);
// Its threads, its root, and its place in its room.
void end_request(RequestTrace& request, Nanos end);
void end_expired(std::vector<RequestNode>& requests);
// Ends every request that nobody touched for `idle`, with `mark` on its spans; forgets rooms that nobody entered.
size_t end_idle(Nanos idle, Name mark);

// The room's span and the slice before it; makes the span, below `parent`, unless the room is known. Invalid: too many
// rooms. Each one that entered leaves by end_request().
TraceProcContext enter_room(uint64_t room, const SpanContext& parent, Nanos start);
std::optional<SpanContext> room_context(uint64_t room);
// Another server made it. False: it is known already, or there are too many.
bool add_room(uint64_t room, const TraceProcContext& context);

}  // namespace tuft::telemetry::internal
