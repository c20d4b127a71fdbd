#include "telemetry/request/request_table.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <pthread.h>
#include <utility>

#include "telemetry/request/trace_thread.h"

namespace tuft::telemetry::internal {
namespace {

constexpr size_t kShards = 64;
constexpr Nanos kSweepInterval = 60 * kSecond;

struct Room {
  Span span;  // records nothing if another server made the room
  TraceProcContext context;
  size_t requests = 0;
  Nanos touched = 0;  // monotonic
};

struct Tables {
  std::array<Shard, kShards> shards;
  std::atomic<size_t> request_count{0};
  // May be locked while a shard's mutex is held; no lock is taken while it is held.
  Mutex rooms_mutex;
  std::unordered_map<uint64_t, Room> rooms TUFT_GUARDED_BY(rooms_mutex);
};

std::atomic<Tables*> g_tables{nullptr};

// In the child, the locks of other threads stay locked, and the spans belong to the parent.
void renew_in_child() {
  g_tables.store(new Tables, std::memory_order_release);
  forget_thread_info();
}

Tables& tables() {
  // Leaked: threads may trace until the process ends.
  static const bool made = [] {
    g_tables.store(new Tables, std::memory_order_release);
    ::pthread_atfork(nullptr, nullptr, &renew_in_child);
    return true;
  }();
  (void)made;
  return *g_tables.load(std::memory_order_acquire);
}

Nanos monotonic_now() {
  return system_clock().monotonic();
}

std::string hex(uint64_t value) {
  std::array<char, 18> text{'0', 'x'};
  char* end = std::to_chars(text.data() + 2, text.data() + text.size(), value, 16).ptr;
  return std::string(text.data(), end);
}

std::vector<RequestNode> take_idle(Shard& shard, Nanos idle) TUFT_REQUIRES(shard.mutex) {
  const Nanos touched_max = monotonic_now() - idle;
  std::vector<RequestNode> taken;
  for (auto it = shard.requests.begin(); it != shard.requests.end();) {
    const auto next = std::next(it);
    if (it->second.touched <= touched_max) taken.push_back(shard.requests.extract(it));
    it = next;
  }
  tables().request_count -= taken.size();
  return taken;
}

void end_abandoned(std::vector<RequestNode>& requests, Name mark) {
  for (RequestNode& node : requests) {
    RequestTrace& request = node.mapped();
    for (ThreadTrace& thread : request.threads) thread.span.set_attribute(mark, true);
    request.root.set_attribute(mark, true);
    end_request(request, request.touched);
  }
}

void leave_room(uint64_t number, Nanos end) {
  Tables& all = tables();
  Span span;
  {
    MutexLock lock(all.rooms_mutex);
    const auto found = all.rooms.find(number);
    if (found == all.rooms.end() || --found->second.requests != 0) return;
    span = std::move(found->second.span);
    all.rooms.erase(found);
  }
  span.end(end);
}

}  // namespace

Nanos RequestTrace::monotonic(Nanos ts, Nanos now) const {
  // The span would take 0 as "now".
  return ts == 0 ? now : std::max<Nanos>(ts - wall_offset, 1);
}

ThreadTrace* RequestTrace::this_thread() {
  const uint64_t key = this_thread_key();
  const auto found = std::find_if(threads.begin(), threads.end(), [&](const auto& one) { return one.thread == key; });
  return found == threads.end() ? nullptr : &*found;
}

Shard& shard_of(std::string_view rid) {
  return tables().shards[TextHash{}(rid) % kShards];
}

size_t request_count() {
  return tables().request_count.load(std::memory_order_relaxed);
}

RequestTrace* add_request(Shard& shard, std::string_view rid, Nanos ts, bool& full) {
  std::atomic<size_t>& count = tables().request_count;
  full = count.load(std::memory_order_relaxed) >= kTracedRequestsMax;
  if (full) return nullptr;
  const auto [added, is_new] = shard.requests.try_emplace(std::string(rid));
  if (!is_new) return nullptr;
  ++count;
  RequestTrace& request = added->second;
  request.touched = monotonic_now();
  request.wall_offset = system_clock().wall() - request.touched;
  request.start = request.monotonic(ts, request.touched);
  return &request;
}

RequestNode take_request(Shard& shard, std::string_view rid) {
  const auto found = shard.requests.find(rid);
  if (found == shard.requests.end()) return {};
  --tables().request_count;
  return shard.requests.extract(found);
}

std::vector<RequestNode> take_expired(Shard& shard) {
  const Nanos time = monotonic_now();
  if (time < shard.next_sweep) return {};
  shard.next_sweep = time + kSweepInterval;
  return take_idle(shard, kTraceExpiry);
}

ThreadTrace* open_thread(RequestTrace& request, const SpanContext& previous, Nanos start) {
  if (request.threads.size() >= kTracedThreadsMax) return nullptr;
  ThreadTrace& thread = request.threads.emplace_back();
  thread.thread = this_thread_key();
  thread.span = start_thread_span(request.root_context, start);
  thread.previous = previous;
  return &thread;
}

bool open_slice(ThreadTrace& thread, Name name, Nanos start, bool anonymous) {
  if (thread.slices.size() >= kTracedSlicesMax) return false;
  const bool outermost = thread.slices.empty();
  SpanOptions options{.parent = outermost ? thread.span.context() : thread.slices.back().span.context(),
                      .start = start};
  if (outermost) options.link = thread.previous;
  thread.slices.push_back({request_tracer().start_span(name, options), name, anonymous});
  return true;
}

void end_thread(ThreadTrace& thread, Nanos end) {
  for (; !thread.slices.empty(); thread.slices.pop_back()) {
    Span& slice = thread.slices.back().span;
    slice.set_attribute("tuft.trace.unfinished", true);
    slice.end(end);
  }
  thread.span.end(end);
}

void end_request(RequestTrace& request, Nanos end) {
  for (ThreadTrace& thread : request.threads) end_thread(thread, end);
  request.root.end(end);
  if (request.room) leave_room(*request.room, end);
}

void end_expired(std::vector<RequestNode>& requests) {
  end_abandoned(requests, "tuft.trace.expired");
}

size_t end_idle(Nanos idle, Name mark) {
  Tables& all = tables();
  size_t ended = 0;
  for (Shard& shard : all.shards) {
    std::vector<RequestNode> taken;
    {
      MutexLock lock(shard.mutex);
      taken = take_idle(shard, idle);
    }
    end_abandoned(taken, mark);
    ended += taken.size();
  }
  MutexLock lock(all.rooms_mutex);
  const Nanos touched_max = monotonic_now() - idle;
  // Rooms of other servers for which no request arrived. They hold no span of this process.
  std::erase_if(all.rooms,
                [&](const auto& entry) { return entry.second.requests == 0 && entry.second.touched <= touched_max; });
  return ended;
}

TraceProcContext enter_room(uint64_t number, const SpanContext& parent, Nanos start) {
  Tables& all = tables();
  MutexLock lock(all.rooms_mutex);
  auto found = all.rooms.find(number);
  if (found == all.rooms.end()) {
    if (all.rooms.size() >= kTracedRoomsMax) return {};
    found = all.rooms.try_emplace(number).first;
    Room& room = found->second;
    const std::string text = hex(number);
    room.span = request_tracer().start_span(
        "Bootstrap Room", {.attributes = {{"bootstrap_room", text}}, .parent = parent, .start = start});
    room.span.set_dynamic_name("Bootstrap Room " + text);
    room.context.root = room.span.context();
  }
  Room& room = found->second;
  ++room.requests;
  return room.context;
}

std::optional<SpanContext> room_context(uint64_t number) {
  Tables& all = tables();
  MutexLock lock(all.rooms_mutex);
  const auto found = all.rooms.find(number);
  if (found == all.rooms.end()) return std::nullopt;
  return found->second.context.root;
}

bool add_room(uint64_t number, const TraceProcContext& context) {
  Tables& all = tables();
  MutexLock lock(all.rooms_mutex);
  if (all.rooms.size() >= kTracedRoomsMax) return false;
  const auto [added, is_new] = all.rooms.try_emplace(number);
  if (!is_new) return false;
  added->second.context = context;
  added->second.touched = monotonic_now();
  return true;
}

}  // namespace tuft::telemetry::internal
