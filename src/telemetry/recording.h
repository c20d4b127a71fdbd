// The switches that every recording call looks at first. Internal to telemetry.
#pragma once

#include <atomic>
#include <cstdint>

namespace tuft::telemetry::internal {

// Spans are taken; off before init_telemetry(), from the start of shutdown_telemetry(), and in a child of fork().
extern constinit std::atomic<bool> g_recording;
// Log records are.
extern constinit std::atomic<bool> g_logs_recording;
// Metrics are; off only at the end of shutdown, so that the last export counts itself.
extern constinit std::atomic<bool> g_metrics_recording;

// Which traces are sampled: those whose random low half is at most the threshold; 0 is none. Written before recording
// starts.
struct Sampling {
  std::atomic<uint64_t> threshold{UINT64_MAX};
  // Whether a parent's decision stands.
  std::atomic<bool> parent_based{true};
  // Spans that are not sampled are recorded all the same, for the tail sampler.
  std::atomic<bool> record_unsampled{false};
};
extern constinit Sampling g_sampling;

// What extract() takes from the outside and inject() hands on. Written before recording starts.
struct Propagation {
  std::atomic<bool> trace_context{true};
  std::atomic<bool> baggage{false};
};
extern constinit Propagation g_propagation;

inline bool recording() {
  return g_recording.load(std::memory_order_relaxed);
}
inline bool logs_recording() {
  return g_logs_recording.load(std::memory_order_relaxed);
}
inline bool metrics_recording() {
  return g_metrics_recording.load(std::memory_order_relaxed);
}

}  // namespace tuft::telemetry::internal
