// The settings of init_telemetry(): the configuration and the environment with every rule applied. Internal to
// telemetry.
//
// Order: the configuration, TuFT's own variables, OpenTelemetry's for the signal, OpenTelemetry's for all signals,
// FastDeploy's, the default. TUFT_OTEL_DEBUG=1 overrides all of them. A wrong value is an error that names its key or
// variable if it is in the configuration or affects where data goes. Any other wrong variable is replaced by the
// default with a warning, as OpenTelemetry requires. With the export off, only the variables are read that what is
// recorded all the same needs, and none of them is an error.
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
  // The key or variable whose address decided the protocol; "" if a setting named it, or it is the default.
  std::string protocol_from = {};
  // kGrpc: "host:port". kHttpProtobuf: the whole URL including the signal's path. kFile: a path. kConsole, kNone: "".
  std::string endpoint = {};
  bool tls = false;
  std::string ca_file = {};  // "": the system's certificates
  std::string certificate_file = {};
  std::string key_file = {};
  std::map<std::string, std::string> headers = {};  // lower-case names; gRPC metadata or HTTP headers
  Compression compression = Compression::kNone;
  // The time limit of one attempt.
  Nanos export_timeout = 10 * kSecond;
  // Traces and logs: the longest wait before a batch is sent. Metrics: the time between two collections.
  Nanos interval = kSecond;
  // With the default a batch stays below gRPC's 4 MiB.
  size_t batch_max = 512;
  // The maximum number of records that wait for the exporter.
  size_t queue_max = 32768;
};

struct Settings {
  bool enabled = false;
  // Whether spans and log records are put into the outbox, also if `enabled` is false.
  bool outbox = false;
  SignalSettings traces;
  SignalSettings logs;
  SignalSettings metrics{.interval = 60 * kSecond};
  Temporality temporality = Temporality::kCumulative;
  std::map<std::string, std::string> metric_labels;  // of every exported data point
  ExemplarFilter exemplar_filter = ExemplarFilter::kTraceBased;
  HistogramAggregation histogram_aggregation = HistogramAggregation::kExplicitBuckets;
  Nanos shutdown_budget = 5 * kSecond;

  // See Sampling in recording.h.
  uint64_t sampling_threshold = UINT64_MAX;
  bool sampling_parent_based = true;
  bool keep_errors = true;
  Nanos keep_slower_than = 0;  // 0: a span's duration does not matter
  size_t trace_archive_bytes = 0;

  bool propagate_trace_context = true;
  bool propagate_baggage = false;

  // The lowest level of the log records that are exported.
  Severity exported_log_level = Severity::kDebug;
  // The lowest level of the library's own log lines; nullopt: none is written. Without OTEL_LOG_LEVEL it is that of all
  // lines, and nothing is said here.
  bool own_log_level_said = false;
  std::optional<Severity> own_log_level = Severity::kDebug;

  bool metrics_endpoint = true;
  std::string service_name;
  // OTEL_RESOURCE_ATTRIBUTES, percent-decoded, overridden by those of the configuration; without service.name.
  std::map<std::string, std::string> resource_attributes;
};

Result<Settings> read_settings(const TelemetryConfig& config);

}  // namespace tuft::telemetry::internal
