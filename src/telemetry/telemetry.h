// Life cycle of telemetry in a process: configuration, start, flush, bounded shutdown.
//
// Request and engine threads write spans and logs into rings of their own and metrics into atomics. One telemetry
// thread turns them into OpenTelemetry data and hands them to opentelemetry-cpp's exporters. Nothing here ever blocks,
// slows or fails a request; what is lost is counted in tuft.telemetry.*.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace tuft::telemetry {

struct TelemetryConfig {
  bool enabled = false;
  std::string service_name = "tuft";
  // Else $TUFT_OTLP_ENDPOINT, else the exporter's own default (OTEL_EXPORTER_OTLP_* and http://localhost:4317).
  std::optional<std::string> otlp_endpoint = {};
  // Merged over the SDK's defaults, OTEL_RESOURCE_ATTRIBUTES and service.name; they win.
  std::map<std::string, std::string> resource_attributes = {};
};

// Starts recording and the telemetry thread. TUFT_OTEL_DEBUG=1 exports to the console (stdout) instead of OTLP.
// Nothing is started where config.enabled is false. A second call warns and changes nothing.
// Fails only on a wrong configuration (an endpoint that is no URL), naming the key; an absent collector is no error.
// Call it after fork() and before threads that record.
Status init_telemetry(const TelemetryConfig& config);

bool telemetry_enabled();

// Exports what is recorded so far; false when the budget ran out or an export failed.
bool flush_telemetry(Nanos budget);

// Stops recording, exports the rest including the last metric interval, and gives up after `budget` whatever the
// collector does. Idempotent.
void shutdown_telemetry(Nanos budget = 5 * kSecond);

// Feeds the tuft.resource.* gauges from /proc, cgroups and NVML (loaded at run time; one INFO line where it is absent).
void start_resource_metrics();

}  // namespace tuft::telemetry
