#include "telemetry/telemetry.h"

#include "telemetry/recording.h"

namespace tuft::telemetry {

constinit std::atomic<bool> internal::g_recording{false};
constinit std::atomic<bool> internal::g_metrics_recording{false};

Status init_telemetry(const TelemetryConfig& config) {
  internal::g_metrics_recording = config.enabled;
  return {};
}
bool telemetry_enabled() { return internal::recording(); }
bool flush_telemetry(Nanos) { return true; }
void shutdown_telemetry(Nanos) {}
void start_resource_metrics() {}

}  // namespace tuft::telemetry
