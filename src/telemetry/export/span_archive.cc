#include "telemetry/export/span_archive.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_set>
#include <utility>

#include "telemetry/instruments/health.h"
#include "telemetry/otlp/wire.h"
#include "telemetry/record/recorder.h"

namespace tuft::telemetry::internal {
namespace {

constexpr std::string_view kSessionKey = "tuft.session_id";
// Sizes are multiples of this, so that the end of the buffer always has room for the first two fields.
constexpr size_t kAlignment = 8;

// FNV-1a; never 0, which means no session. A collision is harmless: collected spans are filtered by the id itself.
uint64_t hash_of(std::string_view session_id) {
  if (session_id.empty()) return 0;
  uint64_t hash = 14695981039346656037u;
  for (const char c : session_id) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash == 0 ? 1 : hash;
}

struct TraceIdHash {
  size_t operator()(const TraceId& id) const { return static_cast<size_t>(id.low ^ (id.high * 0x9e3779b97f4a7c15)); }
};
using TraceSet = std::unordered_set<TraceId, TraceIdHash>;

}  // namespace

// Precedes each encoded span in the circular buffer.
struct SpanArchive::Entry {
  uint32_t size = 0;       // including this header, rounded up
  uint32_t span_size = 0;  // 0: skipped; the next entry is at the start of the buffer
  TraceId trace;
  uint64_t session = 0;
  std::string_view scope;
};

std::string_view session_of(const std::byte* record) {
  SpanHead head;
  std::memcpy(&head, record + sizeof(RecordHeader), sizeof(head));
  const std::byte* const attributes = record + sizeof(RecordHeader) + sizeof(SpanHead);
  const std::byte* const strings = attributes +
                                   (head.attribute_count + head.event_attribute_count) * sizeof(AttributeSlot) +
                                   head.event_count * sizeof(EventSlot) + head.more_link_count * sizeof(SpanContext);
  for (uint32_t i = 0; i < head.attribute_count; ++i) {
    AttributeSlot slot;
    std::memcpy(static_cast<void*>(&slot), attributes + i * sizeof(AttributeSlot), sizeof(slot));
    if (slot.kind != AttributeValue::Kind::kString || slot.key.view() != kSessionKey) continue;
    return {reinterpret_cast<const char*>(strings) + slot.as_string.offset, slot.as_string.size};
  }
  return {};
}

SpanArchive::SpanArchive(size_t bytes_max, std::string resource)
    : bytes_max_(bytes_max / kAlignment * kAlignment), resource_(std::move(resource)) {}

SpanArchive::Entry SpanArchive::entry_at_locked(uint64_t position) const {
  const size_t place = position % bytes_max_;
  Entry entry;
  std::memcpy(static_cast<void*>(&entry), &bytes_[place], std::min(sizeof(Entry), bytes_max_ - place));
  return entry;
}

void SpanArchive::add(const TraceId& trace, std::string_view session_id, std::string_view scope,
                      std::string_view span) {
  const size_t size = (sizeof(Entry) + span.size() + kAlignment - 1) / kAlignment * kAlignment;
  int64_t evicted = 0;
  if (size > bytes_max_ / 2) return health_metrics().archive_evicted.add(1);
  {
    MutexLock lock(mutex_);
    if (bytes_ == nullptr) bytes_ = std::make_unique_for_overwrite<std::byte[]>(bytes_max_);
    const size_t to_end = bytes_max_ - end_ % bytes_max_;
    const size_t skipped = size > to_end ? to_end : 0;
    while (end_ + skipped + size - begin_ > bytes_max_) {
      const Entry oldest = entry_at_locked(begin_);
      begin_ += oldest.size;
      evicted += oldest.span_size != 0 ? 1 : 0;
    }
    if (skipped != 0) {
      Entry filler;
      filler.size = static_cast<uint32_t>(skipped);
      std::memcpy(&bytes_[end_ % bytes_max_], &filler, std::min(skipped, sizeof(filler)));
      end_ += skipped;
    }
    const Entry entry{static_cast<uint32_t>(size), static_cast<uint32_t>(span.size()), trace, hash_of(session_id),
                      scope};
    std::byte* const place = &bytes_[end_ % bytes_max_];
    std::memcpy(place, &entry, sizeof(entry));
    std::memcpy(place + sizeof(entry), span.data(), span.size());
    end_ += size;
  }
  if (evicted > 0) health_metrics().archive_evicted.add(evicted);
}

template <typename Take>
void SpanArchive::for_each_locked(Take&& take) const {
  for (uint64_t position = begin_; position != end_;) {
    const Entry entry = entry_at_locked(position);
    if (entry.span_size != 0) {
      const std::byte* const span = &bytes_[position % bytes_max_] + sizeof(Entry);
      take(entry, std::string_view(reinterpret_cast<const char*>(span), entry.span_size));
    }
    position += entry.size;
  }
}

std::vector<TraceId> SpanArchive::traces_of(std::string_view session_id, size_t traces_max) const {
  const uint64_t session = hash_of(session_id);
  std::vector<TraceId> traces;
  if (session == 0) return traces;
  TraceSet known;
  MutexLock lock(mutex_);
  for_each_locked([&](const Entry& entry, std::string_view) {
    if (entry.session == session && known.insert(entry.trace).second) traces.push_back(entry.trace);
  });
  if (traces.size() > traces_max) traces.erase(traces.begin(), traces.end() - static_cast<ptrdiff_t>(traces_max));
  return traces;
}

std::string SpanArchive::spans_of(std::span<const TraceId> traces, size_t bytes_max) const {
  const TraceSet wanted(traces.begin(), traces.end());
  std::map<std::string_view, std::string> by_scope;
  {
    MutexLock lock(mutex_);
    size_t bytes = 0;
    for_each_locked([&](const Entry& entry, std::string_view span) {
      if (wanted.contains(entry.trace)) bytes += span.size();
    });
    for_each_locked([&](const Entry& entry, std::string_view span) {
      if (!wanted.contains(entry.trace)) return;
      if (bytes <= bytes_max) by_scope[entry.scope] += span;
      if (bytes > bytes_max) bytes -= span.size();
    });
  }
  if (by_scope.empty()) return {};
  // Fields of trace.proto: ResourceSpans {1: resource, 2: ScopeSpans {1: scope {1: name}, 2: spans}}.
  otlp::WireWriter writer;
  const size_t resource_spans = writer.open(1);
  writer.bytes(1, resource_);
  for (const auto& [name, spans] : by_scope) {
    const size_t scope_spans = writer.open(2);
    const size_t scope = writer.open(1);
    writer.text(1, name);
    writer.close(scope);
    writer.raw(spans);
    writer.close(scope_spans);
  }
  writer.close(resource_spans);
  return std::string(writer.view());
}

size_t SpanArchive::bytes() const {
  MutexLock lock(mutex_);
  return end_ - begin_;
}

}  // namespace tuft::telemetry::internal
