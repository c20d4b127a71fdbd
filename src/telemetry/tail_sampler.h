// Keeps traces that head sampling left out when they turn out to matter: one of their spans failed, or took long.
// Internal to telemetry.
//
// Spans of a trace that is not sampled are recorded all the same (RECORD_ONLY) where the settings ask for it. The
// telemetry thread holds them here, by trace, within bounds of bytes and time. As soon as a span decides for its trace,
// what is held of it goes to the exporter, and so does what still comes. Another process that holds spans of the same
// trace is told through the listener.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
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
// block. One listener; an empty one takes it away.
using TracesKept = std::function<void(std::span<const TraceId>)>;
void on_traces_kept(TracesKept listener);

// Another process decided to keep these. Thread-safe.
void keep_traces(std::vector<TraceId> traces);

}  // namespace tuft::telemetry
