#include "telemetry/record/recorder.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "telemetry/instruments/health.h"
#include "telemetry/record/per_process.h"

namespace tuft::telemetry::internal {
namespace {

constexpr size_t kLocalRecordsMax = 64;
constexpr size_t kTransferRecords = 32;
constexpr size_t kSpareRingsMax = 8;

// Trivially destructible, so that spans which end in the destructors of other thread_locals still find it.
struct ThreadState {
  struct ThreadRing* ring;
  SpanRecord* records;
  size_t record_count;
  bool ended;
};
constinit thread_local ThreadState t_state{};

// The number of forks between the first process and this one. Changes only while a child has a single thread.
uint32_t g_process = 0;

// Only one thread at a time writes it, so no atomic read-modify-write is needed.
class OwnedCount {
 public:
  void add_one() { value_.store(value_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct ThreadRing {
  ByteRing ring{kRingBytes};
  std::atomic<bool> closed{false};
  alignas(64) OwnedCount sampled;
  OwnedCount record_only;
  OwnedCount ended;
};

void add_counts(SpanCounts& to, const ThreadRing& ring) {
  to.sampled += ring.sampled.get();
  to.record_only += ring.record_only.get();
  to.ended += ring.ended.get();
}

struct Shared {
  // The child does not use the parent's objects.
  static void after_fork() {
    ++g_process;
    t_state = {.ring = nullptr, .records = nullptr, .record_count = 0, .ended = t_state.ended};
  }

  Mutex mutex;
  std::vector<ThreadRing*> rings TUFT_GUARDED_BY(mutex);
  std::vector<ThreadRing*> spare_rings TUFT_GUARDED_BY(mutex);
  SpanRecord* records TUFT_GUARDED_BY(mutex) = nullptr;
  size_t records_made TUFT_GUARDED_BY(mutex) = 0;
  SpanCounts counts TUFT_GUARDED_BY(mutex);  // counts of rings that no longer exist
};

Shared& shared() {
  return PerProcess<Shared>::get();
}

std::atomic<void (*)()> g_wake_up{nullptr};

SpanRecord* take_shared_records(size_t& taken) {
  Shared& all = shared();
  MutexLock lock(all.mutex);
  SpanRecord* first = nullptr;
  taken = 0;
  while (taken < kTransferRecords && all.records != nullptr) {
    SpanRecord* record = all.records;
    all.records = record->next;
    record->next = first;
    first = record;
    ++taken;
  }
  if (first == nullptr && all.records_made < kSpanRecordsMax) {
    ++all.records_made;
    first = new SpanRecord;
    taken = 1;
  }
  return first;
}

void give_shared_records(size_t keep) {
  Shared& all = shared();
  MutexLock lock(all.mutex);
  while (t_state.record_count > keep) {
    SpanRecord* record = t_state.records;
    t_state.records = record->next;
    --t_state.record_count;
    record->next = all.records;
    all.records = record;
  }
}

struct ThreadEnd {
  ~ThreadEnd() {
    t_state.ended = true;
    give_shared_records(0);
    if (t_state.ring != nullptr) t_state.ring->closed.store(true, std::memory_order_release);
    t_state.ring = nullptr;
  }
};

void watch_thread_end() {
  thread_local ThreadEnd end;
  (void)end;
}

ThreadRing* open_ring() {
  if (t_state.ended) return nullptr;
  watch_thread_end();
  Shared& all = shared();
  MutexLock lock(all.mutex);
  ThreadRing* ring = nullptr;
  if (!all.spare_rings.empty()) {
    ring = all.spare_rings.back();
    all.spare_rings.pop_back();
    ring->closed.store(false, std::memory_order_relaxed);
  } else {
    ring = new ThreadRing;
  }
  all.rings.push_back(ring);
  t_state.ring = ring;
  return ring;
}

ThreadRing* this_ring() {
  return t_state.ring != nullptr ? t_state.ring : open_ring();
}

template <typename T>
std::byte* put(std::byte* out, const T* items, size_t count) {
  if (count != 0) std::memcpy(out, items, count * sizeof(T));
  return out + count * sizeof(T);
}

void commit(ThreadRing& thread_ring) {
  thread_ring.ring.commit();
  if (thread_ring.ring.half_full()) [[unlikely]] {
    if (auto* wake_up = g_wake_up.load(std::memory_order_acquire)) wake_up();
  }
}

// The counter is bound once, so that dropping many records costs no more than recording them.
void count_ring_full(uint32_t type) {
  const auto bind = [](std::string_view signal) {
    return health_metrics().dropped.with({{"signal", signal}, {"reason", "ring_full"}});
  };
  static const BoundCounter spans = bind("traces");
  static const BoundCounter logs = bind("logs");
  (type == kSpanType ? spans : logs).add(1);
}

std::byte* reserve(ThreadRing* ring, uint32_t type, size_t size) {
  std::byte* out = ring == nullptr ? nullptr : ring->ring.reserve(size);
  if (out == nullptr) {
    count_ring_full(type);
    return nullptr;
  }
  const RecordHeader header{static_cast<uint32_t>(ByteRing::round_up(size)), type};
  return put(out, &header, 1);
}

AttributeSlot make_slot(const Attribute& attribute) {
  AttributeSlot slot;
  slot.key = attribute.key;
  slot.kind = attribute.value.kind();
  if (slot.kind == AttributeValue::Kind::kDouble) {
    slot.as_double = attribute.value.as_double();
  } else {
    slot.as_int = attribute.value.as_int();
  }
  return slot;
}

void remove_ended(const std::vector<ThreadRing*>& ended) {
  Shared& all = shared();
  MutexLock lock(all.mutex);
  for (ThreadRing* ring : ended) {
    std::erase(all.rings, ring);
    if (all.spare_rings.size() < kSpareRingsMax) {
      all.spare_rings.push_back(ring);
    } else {
      add_counts(all.counts, *ring);
      delete ring;
    }
  }
}

}  // namespace

SpanRecord* acquire_span_record(bool sampled) {
  if (t_state.records == nullptr) {
    // A thread that only ends other threads' spans must return its records too.
    if (!t_state.ended) watch_thread_end();
    t_state.records = take_shared_records(t_state.record_count);
    if (t_state.records == nullptr) return nullptr;
  }
  SpanRecord* record = t_state.records;
  t_state.records = record->next;
  --t_state.record_count;
  record->process = g_process;
  // A thread that is ending has no counters any more.
  if (ThreadRing* ring = this_ring()) (sampled ? ring->sampled : ring->record_only).add_one();
  return record;
}

SpanCounts count_spans() {
  Shared& all = shared();
  MutexLock lock(all.mutex);
  SpanCounts counts = all.counts;
  for (const ThreadRing* ring : all.rings) add_counts(counts, *ring);
  for (const ThreadRing* ring : all.spare_rings) add_counts(counts, *ring);
  return counts;
}

void release_span_record(SpanRecord* record) {
  if (record->process == g_process) {
    if (ThreadRing* ring = this_ring()) ring->ended.add_one();
  }
  record->next = t_state.records;
  t_state.records = record;
  if (++t_state.record_count > kLocalRecordsMax) {
    give_shared_records(kLocalRecordsMax - kTransferRecords);
  } else if (t_state.ended) {
    give_shared_records(0);
  } else if (t_state.record_count == 1) {
    watch_thread_end();
  }
}

bool write_span(const SpanRecord& record) {
  if (record.process != g_process) return false;
  const SpanHead& head = record.head;
  const size_t size = sizeof(RecordHeader) + sizeof(SpanHead) +
                      (head.attribute_count + head.event_attribute_count) * sizeof(AttributeSlot) +
                      head.event_count * sizeof(EventSlot) + head.more_link_count * sizeof(SpanContext) +
                      head.string_bytes;
  ThreadRing* ring = this_ring();
  std::byte* out = reserve(ring, kSpanType, size);
  if (out == nullptr) return false;
  out = put(out, &head, 1);
  out = put(out, record.attributes.data(), head.attribute_count);
  out = put(out, record.events.data(), head.event_count);
  out = put(out, record.event_attributes.data(), head.event_attribute_count);
  out = put(out, record.more_links.data(), head.more_link_count);
  put(out, record.strings.data(), head.string_bytes);
  commit(*ring);
  return true;
}

bool write_log(LogHead head, std::string_view message, Attributes attributes) {
  std::array<std::string_view, kAttributesMax + 1> strings;
  std::array<AttributeSlot, kAttributesMax> slots;
  size_t string_count = 0;
  uint32_t string_bytes = 0;
  const auto add_string = [&](std::string_view text, size_t size_max) {
    const std::string_view cut = cut_utf8(text, size_max);
    strings[string_count++] = cut;
    const StringRef ref{string_bytes, static_cast<uint32_t>(cut.size())};
    string_bytes += ref.size;
    return ref;
  };
  head.message = add_string(message, kLogMessageBytesMax);
  head.attribute_count = 0;
  for (const Attribute& attribute : attributes) {
    if (head.attribute_count == kAttributesMax) break;
    AttributeSlot slot = make_slot(attribute);
    if (slot.kind == AttributeValue::Kind::kString)
      slot.as_string = add_string(attribute.value.as_string(), kStringBytesMax);
    slots[head.attribute_count++] = slot;
  }
  head.string_bytes = string_bytes;
  ThreadRing* ring = this_ring();
  std::byte* out =
      reserve(ring, kLogType,
              sizeof(RecordHeader) + sizeof(LogHead) + head.attribute_count * sizeof(AttributeSlot) + string_bytes);
  if (out == nullptr) return false;
  out = put(out, &head, 1);
  out = put(out, slots.data(), head.attribute_count);
  for (size_t i = 0; i < string_count; ++i) out = put(out, strings[i].data(), strings[i].size());
  commit(*ring);
  return true;
}

std::string_view cut_utf8(std::string_view text, size_t size_max) {
  if (text.size() <= size_max) return text;
  size_t size = size_max;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  return text.substr(0, size);
}

double drain_rings(const TakeRecord& take) {
  Shared& all = shared();
  std::vector<ThreadRing*> rings;
  {
    MutexLock lock(all.mutex);
    rings = all.rings;
  }
  std::vector<ThreadRing*> ended;
  size_t used_max = 0;
  for (ThreadRing* ring : rings) {
    // Read before draining, so that this drain sees all that the thread wrote before it closed its ring.
    const bool closed = ring->closed.load(std::memory_order_acquire);
    used_max = std::max(used_max, ring->ring.drain(take));
    if (closed) ended.push_back(ring);
  }
  if (!ended.empty()) remove_ended(ended);
  return static_cast<double>(used_max) / kRingBytes;
}

void set_ring_wake_up(void (*wake_up)()) {
  g_wake_up.store(wake_up, std::memory_order_release);
}

void count_dropped(uint32_t type, std::string_view reason, int64_t count) {
  health_metrics().dropped.add(count, {{"signal", type == kSpanType ? "traces" : "logs"}, {"reason", reason}});
}

}  // namespace tuft::telemetry::internal
