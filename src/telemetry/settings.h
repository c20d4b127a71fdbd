// What init_telemetry() was asked for, with the environment read in. Internal to telemetry.
//
// opentelemetry-cpp 1.19 reads OTEL_EXPORTER_OTLP_*, but takes a bare timeout for seconds, and
// OTEL_RESOURCE_ATTRIBUTES, but does not decode it. These and the other variables of OpenTelemetry that operators rely
// on are read here.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "telemetry/telemetry.h"

namespace tuft::telemetry::internal {

struct SignalSettings {
  // 0: the exporter's own reading of the environment stands.
  Nanos export_timeout = 2 * kSecond;
  // OTEL_BSP_SCHEDULE_DELAY, OTEL_BLRP_SCHEDULE_DELAY (ms); OTEL_METRIC_EXPORT_INTERVAL (ms).
  Nanos interval = kSecond;
  // OTEL_BSP_MAX_EXPORT_BATCH_SIZE, OTEL_BLRP_...; at the default a batch stays below gRPC's 4 MiB.
  size_t batch_max = 512;
  // OTEL_BSP_MAX_QUEUE_SIZE, OTEL_BLRP_...: records that wait for the exporter.
  size_t queue_max = 32768;
};

struct Settings {
  bool enabled = false;
  bool console = false;
  // "http://host:port" or "https://host:port"; "" where the exporter's own default counts.
  std::string endpoint;
  bool tls = false;
  SignalSettings traces;
  SignalSettings logs;
  SignalSettings metrics{.interval = 60 * kSecond};
  // OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG, see Sampling in recording.h.
  uint64_t sampling_threshold = UINT64_MAX;
  bool sampling_parent_based = true;
  std::string service_name;
  // OTEL_RESOURCE_ATTRIBUTES, percent-decoded, and over it the configuration's.
  std::map<std::string, std::string> resource_attributes;
};

// kInvalidArgument naming the configuration key or the variable that is wrong. Numbers that make no sense are
// replaced by the default, as OpenTelemetry asks.
Result<Settings> read_settings(const TelemetryConfig& config);

}  // namespace tuft::telemetry::internal
