#include "telemetry/record/tail_sampler.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/mutex.h"
#include "telemetry/instruments/health.h"
#include "telemetry/record/per_process.h"
#include "telemetry/record/recorder.h"

namespace tuft::telemetry {
namespace {

constexpr Nanos kAgeMin = 60 * kSecond;
constexpr size_t kToldTracesMax = 65'536;

// Outlives every pipeline, because other processes may call keep_traces() at any time.
struct Exchange {
  // Locked while the listener runs, so that on_traces_kept() can promise that the old one has ended.
  Mutex listener_mutex;
  TracesKept listener TUFT_GUARDED_BY(listener_mutex);

  Mutex mutex;
  std::vector<TraceId> told TUFT_GUARDED_BY(mutex);
};

Exchange& exchange() {
  return internal::PerProcess<Exchange>::get();
}

std::vector<TraceId> take_told_traces() {
  Exchange& all = exchange();
  MutexLock lock(all.mutex);
  return std::exchange(all.told, {});
}

void tell_listener(std::span<const TraceId> traces) {
  Exchange& all = exchange();
  MutexLock lock(all.listener_mutex);
  if (all.listener) all.listener(traces);
}

}  // namespace

void on_traces_kept(TracesKept listener) {
  Exchange& all = exchange();
  MutexLock lock(all.listener_mutex);
  all.listener = std::move(listener);
}

void keep_traces(std::vector<TraceId> traces) {
  Exchange& all = exchange();
  MutexLock lock(all.mutex);
  if (all.told.size() + traces.size() <= kToldTracesMax) all.told.insert(all.told.end(), traces.begin(), traces.end());
}

namespace internal {
namespace {

SpanHead head_of(const std::byte* record) {
  SpanHead head;
  std::memcpy(&head, record + sizeof(RecordHeader), sizeof(head));
  return head;
}

void set_sampled(std::byte* record) {
  const size_t flags = sizeof(RecordHeader) + offsetof(SpanHead, context) + offsetof(SpanContext, flags);
  record[flags] |= std::byte{1};
}

void count_sampled_out(std::string_view reason, int64_t count) {
  if (count > 0) internal::health_metrics().sampled_out.add(count, {{"reason", reason}});
}

}  // namespace

// Precedes a record in the circular buffer.
struct TailSampler::Entry {
  enum class State : uint32_t { kHeld, kExported, kSkipped };

  uint32_t size;  // including this header
  State state;
  Nanos since;
  TraceId trace;
  uint64_t previous;  // of the same trace; the first entry points to itself
};

TailSampler::TailSampler(const TailSamplerOptions& options, const Clock& clock)
    : options_(options),
      age_max_(std::max(kAgeMin, 2 * options.keep_slower_than)),
      clock_(clock),
      now_(clock.monotonic()) {}

TailSampler::Entry* TailSampler::entry_at(uint64_t position) {
  return reinterpret_cast<Entry*>(&bytes_[position % options_.bytes_max]);
}

void TailSampler::add(const RecordHeader& header, const std::byte* record, const Export& out) {
  const SpanHead head = head_of(record);
  if (head.context.sampled()) return out(header, record);
  const TraceId trace{head.context.trace_id_high, head.context.trace_id_low};
  if (!kept_.contains(trace)) {
    const bool slow = options_.keep_slower_than > 0 && head.end - head.start >= options_.keep_slower_than;
    if (!slow && !(options_.keep_errors && head.error)) return hold(trace, header, record);
    keep(trace, out);
    decided_.push_back(trace);
  }
  scratch_.assign(record, record + header.size);
  set_sampled(scratch_.data());
  out(header, scratch_.data());
}

void TailSampler::hold(const TraceId& trace, const RecordHeader& header, const std::byte* record) {
  const size_t size = sizeof(Entry) + header.size;
  if (size > options_.bytes_max / 2) return count_sampled_out("hold_full", 1);
  if (bytes_ == nullptr) bytes_ = std::make_unique_for_overwrite<std::byte[]>(options_.bytes_max);
  const size_t to_end = options_.bytes_max - end_ % options_.bytes_max;
  const size_t skipped = size > to_end ? to_end : 0;
  int64_t lost = 0;
  while (end_ + skipped + size - begin_ > options_.bytes_max) lost += forget_oldest() ? 1 : 0;
  count_sampled_out("hold_full", lost);
  if (skipped != 0) {
    // Sizes are multiples of 8, and so is the rest of the buffer. State and size fit; the other fields are not read.
    const uint32_t words[2] = {static_cast<uint32_t>(skipped), static_cast<uint32_t>(Entry::State::kSkipped)};
    std::memcpy(&bytes_[end_ % options_.bytes_max], words, sizeof(words));
    end_ += skipped;
  }
  const auto [newest, first] = newest_.try_emplace(trace, end_);
  const Entry entry{static_cast<uint32_t>(size), Entry::State::kHeld, now_, trace, first ? end_ : newest->second};
  std::byte* place = &bytes_[end_ % options_.bytes_max];
  std::memcpy(place, &entry, sizeof(entry));
  std::memcpy(place + sizeof(entry), record, header.size);
  newest->second = end_;
  end_ += size;
}

void TailSampler::keep(const TraceId& trace, const Export& out) {
  remember(trace);
  const auto newest = newest_.find(trace);
  if (newest == newest_.end()) return;
  std::vector<uint64_t> positions;
  for (uint64_t position = newest->second; position >= begin_;) {
    positions.push_back(position);
    const uint64_t previous = entry_at(position)->previous;
    if (previous == position) break;
    position = previous;
  }
  newest_.erase(newest);
  for (auto position = positions.rbegin(); position != positions.rend(); ++position) {
    Entry* entry = entry_at(*position);
    entry->state = Entry::State::kExported;
    std::byte* record = reinterpret_cast<std::byte*>(entry + 1);
    set_sampled(record);
    RecordHeader header;
    std::memcpy(&header, record, sizeof(header));
    out(header, record);
  }
}

void TailSampler::remember(const TraceId& trace) {
  if (!kept_.insert(trace).second) return;
  kept_order_.push_back(trace);
  if (kept_order_.size() <= options_.kept_traces_max) return;
  kept_.erase(kept_order_.front());
  kept_order_.pop_front();
}

bool TailSampler::forget_oldest() {
  const Entry* entry = entry_at(begin_);
  const uint64_t position = begin_;
  begin_ += entry->size;
  if (entry->state != Entry::State::kHeld) return false;
  const auto newest = newest_.find(entry->trace);
  if (newest != newest_.end() && newest->second == position) newest_.erase(newest);
  return true;
}

void TailSampler::end_drain(const Export& out) {
  now_ = clock_.monotonic();
  for (const TraceId& trace : take_told_traces()) keep(trace, out);
  int64_t sampled_out = 0;
  while (begin_ != end_) {
    const Entry* entry = entry_at(begin_);
    if (entry->state == Entry::State::kHeld && now_ - entry->since < age_max_) break;
    sampled_out += forget_oldest() ? 1 : 0;
  }
  count_sampled_out("ratio", sampled_out);
  if (!decided_.empty()) tell_listener(decided_);
  decided_.clear();
}

}  // namespace internal
}  // namespace tuft::telemetry
