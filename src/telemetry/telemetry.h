// The life cycle of telemetry in a process: configuration, start, flush and bounded shutdown.
//
// Threads that serve requests write spans and log records into rings of their own, and metrics into atomics. One
// telemetry thread encodes them as OTLP and hands them to one export thread per signal. Telemetry never blocks, slows
// or fails a request; tuft.telemetry.* counts what is lost.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "telemetry/log.h"

namespace tuft::telemetry {

// The way in which a signal leaves the process. kNone: it is not exported.
enum class Protocol : uint8_t { kGrpc, kHttpProtobuf, kConsole, kFile, kNone };
// The words of the configuration, by Protocol.
inline constexpr std::string_view kProtocolWords[] = {"grpc", "http/protobuf", "console", "file", "none"};
enum class Compression : uint8_t { kNone, kGzip };
// kLowMemory: delta for counters and histograms, cumulative for up-down counters.
enum class Temporality : uint8_t { kCumulative, kDelta, kLowMemory };
// The measurements of a histogram that become exemplars: those in a sampled trace, all, or none.
enum class ExemplarFilter : uint8_t { kTraceBased, kAlwaysOn, kAlwaysOff };
// The words of the configuration and of OTEL_METRICS_EXEMPLAR_FILTER, by ExemplarFilter.
inline constexpr std::string_view kExemplarFilterWords[] = {"trace_based", "always_on", "always_off"};
// The form of histograms over OTLP. The metrics page always has explicit buckets.
enum class HistogramAggregation : uint8_t { kExplicitBuckets, kExponential };
// The words of the configuration and of OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION.
inline constexpr std::string_view kHistogramAggregationWords[] = {"explicit_bucket_histogram",
                                                                  "base2_exponential_bucket_histogram"};

struct TlsConfig {
  std::optional<std::string> ca_file = {};           // default: the system's
  std::optional<std::string> certificate_file = {};  // the client's certificate; requires key_file
  std::optional<std::string> key_file = {};
};

// Settings that may differ between the signals. Those below `endpoint` override the settings for all signals; the
// `telemetry:` block does not have them, a file of OTEL_CONFIG_FILE has.
struct SignalConfig {
  std::optional<bool> enabled = {};
  std::optional<Protocol> protocol = {};
  std::optional<std::string> endpoint = {};
  std::map<std::string, std::string> headers = {};  // secrets: never printed
  std::optional<Compression> compression = {};
  TlsConfig tls = {};
  std::optional<Nanos> export_timeout = {};
  std::optional<Nanos> batch_delay = {};  // traces and logs, as the next two
  std::optional<int64_t> batch_max = {};
  std::optional<int64_t> queue_max = {};
};

// The `telemetry:` block of the configuration. A key that is absent is read from the environment (OTEL_*,
// docs/configuration.md), else it has the default in settings.h. A key that is present wins.
struct TelemetryConfig {
  bool enabled = false;
  // Spans and log records are recorded also if nothing is exported, and put into the outbox (export/outbox.h), of both
  // signals whatever is exported. Sampling and the level of log records apply. OTEL_SDK_DISABLED overrides it. Not a
  // key of the configuration: a server sets it for its embedded store.
  bool outbox = false;
  std::optional<std::string> service_name = {};  // default: "tuft"
  // Default: $TUFT_OTLP_ENDPOINT, else OTEL_EXPORTER_OTLP_*, else http://localhost:4317 (4318 over HTTP).
  std::optional<std::string> otlp_endpoint = {};
  // These override the defaults and OTEL_RESOURCE_ATTRIBUTES.
  std::map<std::string, std::string> resource_attributes = {};

  // Default: OTEL_EXPORTER_OTLP_PROTOCOL, else kHttpProtobuf where the address has a path or the port 4318, else kGrpc.
  std::optional<Protocol> protocol = {};
  std::map<std::string, std::string> headers = {};  // secrets: never printed
  std::optional<Compression> compression = {};
  TlsConfig tls = {};
  std::optional<std::string> file_path = {};  // for protocol: file; OTLP JSON lines
  std::optional<Nanos> export_timeout = {};
  SignalConfig traces = {};
  SignalConfig metrics = {};
  SignalConfig logs = {};
  // The lowest level of the log records that are exported. Default: kDebug, so that the trace of each operation has log
  // records, whatever the level of the lines on stderr is.
  std::optional<Severity> log_level = {};

  std::optional<std::string> sampler = {};    // one of the names of OTEL_TRACES_SAMPLER
  std::optional<double> sampling_ratio = {};  // 0 .. 1
  // Traces that sampling leaves out are exported all the same if one of their spans failed or took this long.
  std::optional<bool> keep_errors = {};
  std::optional<Nanos> keep_slower_than = {};

  // Attributes of every exported data point, for a process whose metrics another process shows on its metrics page with
  // these labels (exposition.h), so that pushed series have the labels of scraped ones. Not a key of the configuration.
  std::map<std::string, std::string> metric_labels = {};
  std::optional<Nanos> metric_interval = {};
  std::optional<Temporality> temporality = {};
  std::optional<ExemplarFilter> exemplar_filter = {};
  std::optional<HistogramAggregation> histogram_aggregation = {};
  std::optional<Nanos> batch_delay = {};  // traces and logs
  std::optional<int64_t> batch_max = {};  // records
  std::optional<int64_t> queue_max = {};  // records
  // Memory for finished spans that each process keeps for the export of a session's trace; 0: it keeps none.
  int64_t trace_archive_bytes = 16 << 20;
  std::optional<Nanos> shutdown_budget = {};
  std::optional<bool> propagate_trace_context = {};  // with callers outside; default: what OTEL_PROPAGATORS says
  std::optional<bool> propagate_baggage = {};
  // The lowest level of the library's own log lines: a word of OTEL_LOG_LEVEL.
  std::optional<std::string> own_log_level = {};
  // True if the configuration is complete, as a file of OTEL_CONFIG_FILE is: no variable is read but TUFT_OTEL_DEBUG.
  bool environment_ignored = false;

  // Serves GET /metrics. Metrics are recorded if this or `enabled` is true.
  bool metrics_endpoint = true;
  std::string metrics_token = {};  // a secret; empty: only callers on this machine may read the page
  // Adds tuft.tenant.*, labelled with the user names in authorized_users.
  bool tenant_label = false;
};

// Starts recording and the telemetry threads. TUFT_OTEL_DEBUG=1 exports to the console (stdout) instead of OTLP. A
// second call logs a warning and changes nothing. Fails only on a wrong configuration, and names the key or the
// variable; an absent collector is no error. Call it before starting threads that record. A child of fork() records
// nothing until it calls this; protocol grpc is refused there if the parent has used gRPC, which does not survive a
// fork.
Status init_telemetry(const TelemetryConfig& config);

// Returns true if spans or log records are being recorded.
bool telemetry_enabled();

// Exports everything recorded so far. Returns false if the time ran out or an export failed.
bool flush_telemetry(Nanos budget);

// Stops recording, exports the rest with the last metric interval, and gives up after `budget` (0: the configured one,
// 5 s by default). Idempotent.
void shutdown_telemetry(Nanos budget = 0);

// Reports tuft.resource.*, process.* and hw.* from /proc, control groups and the libraries of GPU vendors (NVML, AMD
// SMI, ROCm SMI), which are loaded at run time (one INFO line if none finds a GPU). With `disk`, a directory, also
// reports its file system and system.*; one process per machine should do so.
void start_resource_metrics(const std::string& disk = {});

}  // namespace tuft::telemetry
