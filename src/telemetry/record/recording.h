// Switches that every recording call checks first. Internal to telemetry.
#pragma once

#include <atomic>
#include <cstdint>

#include "telemetry/telemetry.h"

namespace tuft::telemetry::internal {

// True while spans are recorded: from init_telemetry() to the start of shutdown_telemetry(). A fork() clears it.
extern constinit std::atomic<bool> g_recording;
// True while log records are recorded, under the same conditions.
extern constinit std::atomic<bool> g_logs_recording;
// True while metrics are recorded. Cleared only at the end of a shutdown, so that the last export counts itself.
extern constinit std::atomic<bool> g_metrics_recording;

// Sampling of traces: a trace is sampled if the random low half of its id is at most the threshold; 0: none is. Written
// before recording starts.
struct Sampling {
  std::atomic<uint64_t> threshold{UINT64_MAX};
  // True if the parent's decision applies.
  std::atomic<bool> parent_based{true};
  // True if spans that are not sampled are recorded for the tail sampler.
  std::atomic<bool> record_unsampled{false};
};
extern constinit Sampling g_sampling;

// The trace context that extract() accepts from outside and that inject() sends. Written before recording starts.
struct Propagation {
  std::atomic<bool> trace_context{true};
  std::atomic<bool> baggage{false};
};
extern constinit Propagation g_propagation;

// Written before recording starts.
extern constinit std::atomic<ExemplarFilter> g_exemplar_filter;
// True if histograms count into exponential buckets too.
extern constinit std::atomic<bool> g_exponential_histograms;

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
