// The switches that every recording call looks at first. Internal to telemetry.
#pragma once

#include <atomic>

namespace tuft::telemetry::internal {

// Spans and logs are taken; off before init_telemetry() and from the start of shutdown_telemetry().
extern constinit std::atomic<bool> g_recording;
// Metrics are taken; off only at the end of shutdown, so that the last export counts itself.
extern constinit std::atomic<bool> g_metrics_recording;

inline bool recording() { return g_recording.load(std::memory_order_relaxed); }
inline bool metrics_recording() { return g_metrics_recording.load(std::memory_order_relaxed); }

}  // namespace tuft::telemetry::internal
