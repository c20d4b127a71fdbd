// What init_telemetry() was asked for, with the environment read in and every rule applied. Internal to telemetry.
//
// Order: the configuration, TuFT's own variables, OpenTelemetry's for the signal, OpenTelemetry's for all signals, the
// default. A value that is wrong is an error naming its key or variable, where it came from the configuration or would
// change where data goes; a number in the environment that makes no sense is replaced by the default with a warning, as
// OpenTelemetry asks.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/result.h"
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

  bool propagate_trace_context = true;
  bool propagate_baggage = false;

  bool metrics_endpoint = true;
  std::string service_name;
  // OTEL_RESOURCE_ATTRIBUTES, percent-decoded, and over it the configuration's.
  std::map<std::string, std::string> resource_attributes;
};

Result<Settings> read_settings(const TelemetryConfig& config);

}  // namespace tuft::telemetry::internal
