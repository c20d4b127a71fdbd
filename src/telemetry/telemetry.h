// Life cycle of telemetry in a process: configuration, start, flush, bounded shutdown.
//
// Request and engine threads write spans and logs into rings of their own and metrics into atomics. One telemetry
// thread turns them into OTLP and hands them to one exporting thread a signal. Nothing here ever blocks, slows or fails
// a request; what is lost is counted in tuft.telemetry.*.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace tuft::telemetry {

// How a signal leaves the process. kNone: it does not.
enum class Protocol : uint8_t { kGrpc, kHttpProtobuf, kConsole, kFile, kNone };
enum class Compression : uint8_t { kNone, kGzip };
// kLowMemory: delta for counters and histograms, cumulative for what goes up and down.
enum class Temporality : uint8_t { kCumulative, kDelta, kLowMemory };

// What of one signal the configuration file may say differently from the others.
struct SignalConfig {
  std::optional<bool> enabled = {};
  std::optional<Protocol> protocol = {};
  std::optional<std::string> endpoint = {};
};

struct TlsConfig {
  std::optional<std::string> ca_file = {};           // else the system's
  std::optional<std::string> certificate_file = {};  // of this client, with key_file
  std::optional<std::string> key_file = {};
};

// The `telemetry:` block. What is absent is read from the environment (OTEL_*, docs/configuration.md), else it has the
// default that settings.h says; what is present wins.
struct TelemetryConfig {
  bool enabled = false;
  std::string service_name = "tuft";
  // Else $TUFT_OTLP_ENDPOINT, else OTEL_EXPORTER_OTLP_*, else http://localhost:4317 (4318 over HTTP).
  std::optional<std::string> otlp_endpoint = {};
  // Merged over the defaults and OTEL_RESOURCE_ATTRIBUTES; they win.
  std::map<std::string, std::string> resource_attributes = {};

  std::optional<Protocol> protocol = {};
  std::map<std::string, std::string> headers = {};  // secrets: never printed
  std::optional<Compression> compression = {};
  TlsConfig tls = {};
  std::optional<std::string> file_path = {};  // of protocol: file; OTLP JSON lines
  std::optional<Nanos> export_timeout = {};
  SignalConfig traces = {};
  SignalConfig metrics = {};
  SignalConfig logs = {};

  std::optional<std::string> sampler = {};    // a name of OTEL_TRACES_SAMPLER
  std::optional<double> sampling_ratio = {};  // 0 .. 1
  // Traces that the ratio leaves out are kept all the same when one of their spans failed, or took this long.
  std::optional<bool> keep_errors = {};
  std::optional<Nanos> keep_slower_than = {};

  std::optional<Nanos> metric_interval = {};
  std::optional<Temporality> temporality = {};
  std::optional<Nanos> batch_delay = {};  // of traces and logs
  std::optional<int64_t> batch_max = {};  // records
  std::optional<int64_t> queue_max = {};  // records
  // Of finished spans that stay in memory, in each process, for the export of a session's trace; 0: none do.
  int64_t trace_archive_bytes = 16 << 20;
  std::optional<Nanos> shutdown_budget = {};
  std::optional<bool> propagate_baggage = {};

  // GET /metrics of the HTTP server. Metrics are recorded where this or `enabled` is true.
  bool metrics_endpoint = true;
  std::string metrics_token = {};  // a secret; empty: only callers on this machine may read it
  // Adds tuft.tenant.*, labelled with the names in authorized_users.
  bool tenant_label = false;
};

// Starts recording and the telemetry threads. TUFT_OTEL_DEBUG=1 exports to the console (stdout) instead of OTLP.
// A second call warns and changes nothing.
// Fails only on a wrong configuration, naming the key or the variable; an absent collector is no error.
// Call it before threads that record. In a child of fork() nothing is recorded until it is called there; protocol grpc
// is refused there once the parent has used gRPC, which does not survive a fork.
Status init_telemetry(const TelemetryConfig& config);

// Spans and logs are recorded.
bool telemetry_enabled();

// Exports what is recorded so far; false when the budget ran out or an export failed.
bool flush_telemetry(Nanos budget);

// Stops recording, exports the rest including the last metric interval, and gives up after `budget` (0: the configured
// one, 5 s by default) whatever the collector does. Idempotent.
void shutdown_telemetry(Nanos budget = 0);

// Feeds tuft.resource.*, process.* and hw.* from /proc, cgroups and NVML (loaded at run time; one INFO line where it is
// absent); with `disk`, a directory, its file system and system.* too: one process a machine should report those.
void start_resource_metrics(const std::string& disk = {});

}  // namespace tuft::telemetry
