#include "telemetry/telemetry.h"

#include <atomic>
#include <exception>
#include <pthread.h>
#include <vector>

#include <grpc/grpc.h>

#include "base/mutex.h"
#include "telemetry/export/pipeline.h"
#include "telemetry/host/resource_metrics.h"
#include "telemetry/instruments/health.h"
#include "telemetry/instruments/resources.h"
#include "telemetry/log.h"
#include "telemetry/log/log_line.h"
#include "telemetry/metric/instrument_fork.h"
#include "telemetry/metric/target_info.h"
#include "telemetry/otlp/resource.h"
#include "telemetry/record/per_process.h"
#include "telemetry/record/recorder.h"
#include "telemetry/record/recording.h"
#include "telemetry/settings/settings.h"

namespace tuft::telemetry {

constinit std::atomic<bool> internal::g_recording{false};
constinit std::atomic<bool> internal::g_logs_recording{false};
constinit std::atomic<bool> internal::g_metrics_recording{false};
constinit internal::Sampling internal::g_sampling{};
constinit internal::Propagation internal::g_propagation{};
constinit std::atomic<ExemplarFilter> internal::g_exemplar_filter{ExemplarFilter::kTraceBased};
constinit std::atomic<bool> internal::g_exponential_histograms{false};

namespace {

using internal::Pipeline;
using internal::Settings;

// The running pipeline. Never destroyed, see Pipeline.
std::atomic<Pipeline*> g_pipeline{nullptr};
std::atomic<bool> g_started{false};
// gRPC's threads and locks do not survive a fork(), and gRPC cannot be started again.
std::atomic<bool> g_grpc_lost{false};
std::atomic<bool> g_grpc_at_fork{false};

struct LifeCycle {
  // Serializes starts and stops; held while a stop waits. Recording never locks it.
  Mutex mutex;
  std::vector<Pipeline*> stopped TUFT_GUARDED_BY(mutex);
  Nanos shutdown_budget TUFT_GUARDED_BY(mutex) = 0;
};

LifeCycle& life_cycle() {
  return internal::PerProcess<LifeCycle>::get();
}

void wake_pipeline_up() {
  if (Pipeline* pipeline = g_pipeline.load(std::memory_order_acquire)) pipeline->wake_up();
}

void prepare_fork() {
  g_grpc_at_fork = ::grpc_is_initialized() != 0;
  internal::lock_instruments();
}

// The telemetry threads belong to the parent. The child records nothing until it calls init_telemetry().
void forget_in_child() {
  internal::reset_instruments_in_child();
  if (g_grpc_at_fork) g_grpc_lost = true;
  internal::g_recording = false;
  internal::g_logs_recording = false;
  internal::g_metrics_recording = false;
  g_pipeline = nullptr;
  g_started = false;
}

void watch_forks() {
  static const bool watched = [] {
    internal::health_metrics();
    internal::resource_metrics();
    ::pthread_atfork(&prepare_fork, &internal::unlock_instruments, &forget_in_child);
    return true;
  }();
  (void)watched;
}

Status start_pipeline(const Settings& settings) {
  try {
    TUFT_ASSIGN(auto made, Pipeline::make(settings));
    // Never destroyed, even if start() fails: if a later thread cannot start, the earlier ones still use it.
    Pipeline* pipeline = made.release();
    pipeline->start();
    g_pipeline.store(pipeline, std::memory_order_release);
  } catch (const std::exception& problem) {
    return internal_error(std::string("the telemetry threads could not be started: ") + problem.what());
  }
  return {};
}

void observe_spans(bool on) {
  const internal::HealthMetrics& metrics = internal::health_metrics();
  if (!on) {
    metrics.sdk_span_started.set_callback({});
    metrics.sdk_span_live.set_callback({});
    return;
  }
  metrics.sdk_span_started.set_callback([](const auto& observe) {
    const internal::SpanCounts counts = internal::count_spans();
    observe(static_cast<double>(counts.sampled), {{"otel.span.sampling_result", "RECORD_AND_SAMPLE"}});
    observe(static_cast<double>(counts.record_only), {{"otel.span.sampling_result", "RECORD_ONLY"}});
  });
  metrics.sdk_span_live.set_callback([](const auto& observe) {
    const internal::SpanCounts counts = internal::count_spans();
    observe(static_cast<double>(counts.sampled + counts.record_only) - static_cast<double>(counts.ended), {});
  });
}

void apply(const Settings& settings) {
  internal::g_sampling.threshold = settings.sampling_threshold;
  internal::g_sampling.parent_based = settings.sampling_parent_based;
  internal::g_sampling.record_unsampled = settings.keep_errors || settings.keep_slower_than > 0;
  internal::g_propagation.trace_context = settings.propagate_trace_context;
  internal::g_propagation.baggage = settings.propagate_baggage;
  internal::g_exemplar_filter = settings.exemplar_filter;
  internal::g_exponential_histograms = settings.histogram_aggregation == HistogramAggregation::kExponential;
  internal::set_own_log_level(settings.own_log_level_said, settings.own_log_level);
  internal::set_exported_log_level(settings.exported_log_level);
}

Status check_fork(const Settings& settings) {
  if (!g_grpc_lost) return {};
  for (const internal::SignalSettings* signal : {&settings.traces, &settings.logs, &settings.metrics}) {
    if (signal->protocol == Protocol::kGrpc)
      return failed_precondition(
          "telemetry over gRPC cannot start in a child of fork() whose parent used gRPC already: set protocol "
          "http/protobuf, or fork first",
          "telemetry_fork");
  }
  return {};
}

// Reports how and where each signal leaves, and which address decided that where nothing named the protocol.
void log_started(const Settings& settings) {
  const auto way = [](const internal::SignalSettings& signal) {
    std::string text(kProtocolWords[static_cast<size_t>(signal.protocol)]);
    if (signal.protocol == Protocol::kGrpc || signal.protocol == Protocol::kHttpProtobuf) {
      text += " to " + signal.endpoint;
    }
    if (!signal.protocol_from.empty()) text += " (by the address in " + signal.protocol_from + ")";
    return text;
  };
  log_info("telemetry.started",
           "traces: " + way(settings.traces) + ", metrics: " + way(settings.metrics) + ", logs: " + way(settings.logs));
}

Status start(const Settings& settings) {
  TUFT_TRY(check_fork(settings));
  watch_forks();
  apply(settings);
  const bool spans = settings.outbox || settings.traces.protocol != Protocol::kNone;
  const bool logs = settings.outbox || settings.logs.protocol != Protocol::kNone;
  const bool metrics = settings.outbox || settings.metrics.protocol != Protocol::kNone;
  if (spans || logs || metrics) TUFT_TRY(start_pipeline(settings));
  g_started = true;
  internal::set_ring_wake_up(&wake_pipeline_up);
  observe_spans(spans);
  internal::g_metrics_recording = metrics || settings.metrics_endpoint;
  internal::g_logs_recording = logs;
  internal::g_recording = spans;
  return {};
}

}  // namespace

Status init_telemetry(const TelemetryConfig& config) {
  if (g_started.load()) {
    log_warning("telemetry.already_started", "telemetry is already running; the second configuration is ignored");
    return {};
  }
  TUFT_ASSIGN(const Settings settings, internal::read_settings(config));
  LifeCycle& cycle = life_cycle();
  MutexLock lock(cycle.mutex);
  if (g_started.load()) return {};
  internal::set_target_info(internal::otlp::encode_resource(settings));
  if (!settings.enabled && !settings.outbox && !settings.metrics_endpoint) return {};
  TUFT_TRY(start(settings));
  cycle.shutdown_budget = settings.shutdown_budget;
  if (settings.enabled) log_started(settings);
  return {};
}

bool telemetry_enabled() {
  return internal::recording() || internal::logs_recording();
}

bool flush_telemetry(Nanos budget) {
  Pipeline* pipeline = g_pipeline.load(std::memory_order_acquire);
  return pipeline == nullptr || pipeline->flush(system_clock().monotonic() + budget);
}

bool fill_outbox(Nanos budget) {
  Pipeline* const pipeline = g_pipeline.load(std::memory_order_acquire);
  return pipeline != nullptr && pipeline->drain_now(system_clock().monotonic() + budget);
}

bool archives_spans() {
  const Pipeline* pipeline = g_pipeline.load(std::memory_order_acquire);
  return pipeline != nullptr && pipeline->archive() != nullptr;
}

std::vector<TraceId> archived_traces(std::string_view session_id, size_t traces_max) {
  Pipeline* const pipeline = g_pipeline.load(std::memory_order_acquire);
  if (pipeline == nullptr || pipeline->archive() == nullptr) return {};
  pipeline->drain_now(system_clock().monotonic() + kSecond);
  return pipeline->archive()->traces_of(session_id, traces_max);
}

std::string archived_spans(std::span<const TraceId> traces, size_t bytes_max) {
  Pipeline* const pipeline = g_pipeline.load(std::memory_order_acquire);
  if (pipeline == nullptr || pipeline->archive() == nullptr) return {};
  pipeline->drain_now(system_clock().monotonic() + kSecond);
  return pipeline->archive()->spans_of(traces, bytes_max);
}

void shutdown_telemetry(Nanos budget) {
  LifeCycle& cycle = life_cycle();
  MutexLock lock(cycle.mutex);
  if (!g_started.exchange(false)) return;
  internal::g_recording = false;
  internal::g_logs_recording = false;
  Pipeline* pipeline = g_pipeline.load();
  if (pipeline != nullptr) pipeline->stop(system_clock().monotonic() + (budget != 0 ? budget : cycle.shutdown_budget));
  internal::stop_resource_metrics();
  observe_spans(false);
  internal::g_metrics_recording = false;
  apply(Settings{});
  if (pipeline != nullptr) cycle.stopped.push_back(pipeline);
  g_pipeline.store(nullptr);
}

}  // namespace tuft::telemetry
