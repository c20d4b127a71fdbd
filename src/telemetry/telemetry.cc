#include "telemetry/telemetry.h"

#include <atomic>
#include <exception>
#include <vector>

#include "base/mutex.h"
#include "telemetry/log.h"
#include "telemetry/otlp/resource.h"
#include "telemetry/pipeline.h"
#include "telemetry/recorder.h"
#include "telemetry/recording.h"
#include "telemetry/resource_metrics.h"
#include "telemetry/settings.h"
#include "telemetry/target_info.h"

namespace tuft::telemetry {

constinit std::atomic<bool> internal::g_recording{false};
constinit std::atomic<bool> internal::g_metrics_recording{false};
constinit internal::Sampling internal::g_sampling{};

namespace {

using internal::Pipeline;

// The running one. A pipeline that was stopped goes to g_stopped and is never destroyed, see Pipeline.
std::atomic<Pipeline*> g_pipeline{nullptr};
// Orders starts and stops; held while a stop waits. Recording never takes it.
Mutex g_life_cycle;

std::vector<Pipeline*>& stopped_pipelines() TUFT_REQUIRES(g_life_cycle) {
  static std::vector<Pipeline*>& stopped = *new std::vector<Pipeline*>;
  return stopped;
}

void wake_pipeline_up() {
  if (Pipeline* pipeline = g_pipeline.load(std::memory_order_acquire)) pipeline->wake_up();
}

Status start_pipeline(const internal::Settings& settings) {
  try {
    TUFT_ASSIGN(auto pipeline, Pipeline::make(settings));
    pipeline->start();
    g_pipeline.store(pipeline.release(), std::memory_order_release);
  } catch (const std::exception& problem) {
    return internal_error(std::string("the telemetry threads could not be started: ") + problem.what());
  }
  return {};
}

}  // namespace

Status init_telemetry(const TelemetryConfig& config) {
  if (g_pipeline.load() != nullptr) {
    log_warning("telemetry.already_started", "telemetry runs already; the second configuration is ignored");
    return {};
  }
  TUFT_ASSIGN(const internal::Settings settings, internal::read_settings(config));
  internal::set_target_info(internal::otlp::encode_resource(settings));
  if (!settings.enabled) return {};
  MutexLock lock(g_life_cycle);
  if (g_pipeline.load() != nullptr) return {};
  TUFT_TRY(start_pipeline(settings));
  internal::set_ring_wake_up(&wake_pipeline_up);
  internal::g_sampling.threshold = settings.sampling_threshold;
  internal::g_sampling.parent_based = settings.sampling_parent_based;
  internal::g_metrics_recording = true;
  internal::g_recording = true;
  return {};
}

bool telemetry_enabled() {
  return internal::recording();
}

bool flush_telemetry(Nanos budget) {
  Pipeline* pipeline = g_pipeline.load(std::memory_order_acquire);
  return pipeline == nullptr || pipeline->flush(system_clock().monotonic() + budget);
}

void shutdown_telemetry(Nanos budget) {
  if (budget == 0) budget = 5 * kSecond;
  MutexLock lock(g_life_cycle);
  Pipeline* pipeline = g_pipeline.load();
  if (pipeline == nullptr || !internal::g_recording.exchange(false)) return;
  pipeline->stop(system_clock().monotonic() + budget);
  internal::stop_resource_metrics();
  internal::g_metrics_recording = false;
  stopped_pipelines().push_back(pipeline);
  g_pipeline.store(nullptr);
}

}  // namespace tuft::telemetry
