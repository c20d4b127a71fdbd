// What init_telemetry() was asked for, with the environment read in and every rule applied. Internal to telemetry.
//
// Order: the configuration, TuFT's own variables, OpenTelemetry's for the signal, OpenTelemetry's for all signals,
// FastDeploy's, the default. TUFT_OTEL_DEBUG=1 is stronger than all of them. A value that is wrong is an error naming
// its key or variable, where it came from the configuration or would change where data goes; another one in the
// environment that makes no sense is replaced by the default with a warning, as OpenTelemetry asks. With telemetry off
// the environment is not looked at, but for what the metrics endpoint needs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "telemetry/log.h"
#include "telemetry/telemetry.h"

namespace tuft::telemetry::internal {

struct SignalSettings {
  Protocol protocol = Protocol::kGrpc;
  // kGrpc: "host:port". kHttpProtobuf: the whole URL, with the signal's path. kFile: a path. kConsole, kNone: "".
  std::string endpoint = {};
  bool tls = false;
  std::string ca_file = {};  // "": the system's
  std::string certificate_file = {};
  std::string key_file = {};
  std::map<std::string, std::string> headers = {};  // lower-case names; gRPC metadata or HTTP headers
  Compression compression = Compression::kNone;
  // Of one attempt.
  Nanos export_timeout = 10 * kSecond;
  // Longest wait before a batch leaves; between two collections of metrics.
  Nanos interval = kSecond;
  // At the default a batch stays below gRPC's 4 MiB.
  size_t batch_max = 512;
  // Records that wait for the exporter.
  size_t queue_max = 32768;
};

struct Settings {
  bool enabled = false;
  SignalSettings traces;
  SignalSettings logs;
  SignalSettings metrics{.interval = 60 * kSecond};
  Temporality temporality = Temporality::kCumulative;
  Nanos shutdown_budget = 5 * kSecond;

  // See Sampling in recording.h.
  uint64_t sampling_threshold = UINT64_MAX;
  bool sampling_parent_based = true;
  bool keep_errors = true;
  Nanos keep_slower_than = 0;  // 0: the time a span takes saves nothing
  size_t trace_archive_bytes = 0;

  bool propagate_trace_context = true;
  bool propagate_baggage = false;

  // Below which telemetry's own log lines are left out (OTEL_LOG_LEVEL); nothing: all of them are.
  std::optional<Severity> own_log_level = Severity::kDebug;

  bool metrics_endpoint = true;
  std::string service_name;
  // OTEL_RESOURCE_ATTRIBUTES, percent-decoded, and over it the configuration's; without service.name.
  std::map<std::string, std::string> resource_attributes;
};

Result<Settings> read_settings(const TelemetryConfig& config);

}  // namespace tuft::telemetry::internal
