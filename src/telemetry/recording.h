// The switches that every recording call looks at first. Internal to telemetry.
#pragma once

#include <atomic>
#include <cstdint>

namespace tuft::telemetry::internal {

// Spans and logs are taken; off before init_telemetry() and from the start of shutdown_telemetry().
extern constinit std::atomic<bool> g_recording;
// Metrics are taken; off only at the end of shutdown, so that the last export counts itself.
extern constinit std::atomic<bool> g_metrics_recording;

// Which traces are sampled: those whose random low half is at most the threshold; 0 is none. Written before recording
// starts.
struct Sampling {
  std::atomic<uint64_t> threshold{UINT64_MAX};
  // Whether a parent's decision stands.
  std::atomic<bool> parent_based{true};
};
extern constinit Sampling g_sampling;

inline bool recording() {
  return g_recording.load(std::memory_order_relaxed);
}
inline bool metrics_recording() {
  return g_metrics_recording.load(std::memory_order_relaxed);
}

}  // namespace tuft::telemetry::internal
