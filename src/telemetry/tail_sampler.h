// Keeps traces that head sampling left out when they turn out to matter: one of their spans failed, or took long.
// Internal to telemetry, but for the functions in front.
//
// Spans of a trace that is not sampled are recorded all the same (RECORD_ONLY) where the settings ask for it. The
// telemetry thread holds them here, by trace, within bounds of bytes and time. As soon as a span decides for its trace,
// what is held of it goes to the exporter, and so does what still comes. Another process that holds spans of the same
// trace is told through the listener.
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
#include "telemetry/byte_ring.h"

namespace tuft::telemetry {

struct TraceId {
  uint64_t high = 0;
  uint64_t low = 0;
  friend auto operator<=>(const TraceId&, const TraceId&) = default;
};

// Called on the telemetry thread, about every 100 ms at most, with traces that this process decided to keep. Must not
// block. One listener; an empty one takes it away. When this returns, the previous one is not running any more; not to
// be called from inside a listener.
using TracesKept = std::function<void(std::span<const TraceId>)>;
void on_traces_kept(TracesKept listener);

// Another process decided to keep these. Thread-safe.
void keep_traces(std::vector<TraceId> traces);

namespace internal {

struct TailSamplerOptions {
  bool keep_errors = true;
  Nanos keep_slower_than = 0;  // 0: the time a span takes saves nothing
  size_t bytes_max = size_t{16} << 20;
  size_t kept_traces_max = 8192;  // remembered, so that what comes late is kept too
};

// For the draining thread alone. Counts what it gives up in tuft.telemetry.sampled_out.
class TailSampler {
 public:
  explicit TailSampler(const TailSamplerOptions& options, const Clock& clock = system_clock());

  // Where records go that are to be exported: a whole record, header first, valid during the call. Its context has the
  // sampled flag set.
  using Export = std::function<void(const RecordHeader& header, const std::byte* record)>;

  // A span as it left a ring: exported at once where it is sampled or its trace is kept, else held.
  void add(const RecordHeader& header, const std::byte* record, const Export& out);
  // After each drain: hands over traces that another process keeps, forgets what is held too long, tells the listener.
  void end_drain(const Export& out);

  size_t held_bytes() const { return end_ - begin_; }

 private:
  struct Entry;
  struct TraceIdHash {
    size_t operator()(const TraceId& id) const { return static_cast<size_t>(id.low ^ (id.high * 0x9e3779b97f4a7c15)); }
  };

  Entry* entry_at(uint64_t position);
  void hold(const TraceId& trace, const RecordHeader& header, const std::byte* record);
  void keep(const TraceId& trace, const Export& out);
  void remember(const TraceId& trace);
  // True where the span was still held, not exported.
  bool forget_oldest();

  const TailSamplerOptions options_;
  const Nanos age_max_;
  const Clock& clock_;
  Nanos now_;  // of the last end_drain()
  // A circle of entries, oldest first; made at the first record that is held. Positions only grow.
  std::unique_ptr<std::byte[]> bytes_;
  uint64_t begin_ = 0;
  uint64_t end_ = 0;
  std::unordered_map<TraceId, uint64_t, TraceIdHash> newest_;  // of each trace; every entry knows the one before it
  std::unordered_set<TraceId, TraceIdHash> kept_;
  std::deque<TraceId> kept_order_;
  std::vector<TraceId> decided_;  // since the last end_drain()
  std::vector<std::byte> scratch_;
};

}  // namespace internal
}  // namespace tuft::telemetry
