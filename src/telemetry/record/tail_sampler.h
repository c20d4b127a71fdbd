// Exports traces that head sampling left out if one of their spans failed or took long. Internal to telemetry, except
// for the functions before namespace internal.
//
// If the settings ask for it, spans of traces that are not sampled are recorded too (RECORD_ONLY). The telemetry thread
// holds them here by trace, within limits of bytes and time. When a span decides for its trace, the held spans of the
// trace and all later ones are exported. A listener tells other processes that hold spans of the same trace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/id.h"
#include "telemetry/record/byte_ring.h"

namespace tuft::telemetry {

struct TraceId {
  uint64_t high = 0;
  uint64_t low = 0;
  friend auto operator<=>(const TraceId&, const TraceId&) = default;
};

// Sets the listener; an empty one removes it. It is called on the telemetry thread, every 100 ms at most, with the
// traces that this process decided to keep, and must not block. When on_traces_kept() returns, the previous listener is
// not running any more. Must not be called from inside a listener.
using TracesKept = std::function<void(std::span<const TraceId>)>;
void on_traces_kept(TracesKept listener);

// Keeps traces that another process decided to keep. Thread-safe.
void keep_traces(std::vector<TraceId> traces);

namespace internal {

struct TailSamplerOptions {
  bool keep_errors = true;
  Nanos keep_slower_than = 0;  // 0: a span's duration does not matter
  size_t bytes_max = size_t{16} << 20;
  size_t kept_traces_max = 8192;  // remembered, so that later spans of these traces are kept too
};

// Multiplies by secret numbers, because clients choose trace ids and could choose such that collide.
struct TraceIdHash {
  size_t operator()(const TraceId& id) const {
    const auto product = static_cast<unsigned __int128>(id.low ^ low_key) * (id.high ^ high_key);
    return static_cast<size_t>(product) ^ static_cast<size_t>(product >> 64);
  }
  uint64_t low_key = random_u64();
  uint64_t high_key = random_u64();
};

// Confined to the draining thread. tuft.telemetry.sampled_out counts the spans that are discarded.
class TailSampler {
 public:
  explicit TailSampler(const TailSamplerOptions& options, const Clock& clock = system_clock());

  // Exports one whole record, header included, that is valid during the call. Its context has the sampled flag set.
  using Export = std::function<void(const RecordHeader& header, const std::byte* record)>;

  // Adds a span from a ring: exports it at once if it is sampled or its trace is kept, else holds it.
  void add(const RecordHeader& header, const std::byte* record, const Export& out);
  // Must be called after each drain: exports the held spans of traces that another process keeps, drops spans held too
  // long, and calls the listener.
  void end_drain(const Export& out);

  size_t held_bytes() const { return end_ - begin_; }

 private:
  struct Entry;

  Entry* entry_at(uint64_t position);
  void hold(const TraceId& trace, const RecordHeader& header, const std::byte* record);
  void keep(const TraceId& trace, const Export& out);
  void remember(const TraceId& trace);
  // Returns true if the span was held and not exported.
  bool forget_oldest();

  const TailSamplerOptions options_;
  const Nanos age_max_;
  const Clock& clock_;
  Nanos now_;  // of the last end_drain()
  // A circular buffer of entries, oldest first; allocated when the first record is held. Positions only grow.
  std::unique_ptr<std::byte[]> bytes_;
  uint64_t begin_ = 0;
  uint64_t end_ = 0;
  std::unordered_map<TraceId, uint64_t, TraceIdHash>
      newest_;  // the newest entry of each trace; entries of a trace are chained
  std::unordered_set<TraceId, TraceIdHash> kept_;
  std::deque<TraceId> kept_order_;
  std::vector<TraceId> decided_;  // since the last end_drain()
  std::vector<std::byte> scratch_;
};

}  // namespace internal
}  // namespace tuft::telemetry
