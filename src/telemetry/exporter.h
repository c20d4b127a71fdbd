// Where encoded telemetry goes: one exporter a signal. Internal to telemetry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "telemetry/settings.h"

namespace tuft::telemetry::internal {

enum class Signal : uint8_t { kTraces, kLogs, kMetrics };
inline constexpr size_t kSignals = 3;
// "traces", "logs", "metrics".
std::string_view signal_name(Signal signal);

struct ExportResult {
  enum class Outcome : uint8_t {
    kDelivered,
    kRetry,   // the collector is away or asks to wait: the same bytes may be sent again
    kRefused  // the same bytes would be refused again
  };
  Outcome outcome = Outcome::kDelivered;
  // Of a delivered request: records that the collector did not take (partial success).
  int64_t rejected = 0;
  // What the collector asks to wait before a retry; 0 where it does not say.
  Nanos retry_after = 0;
  std::string error_type;  // error.type of the metrics: a gRPC code's name, an HTTP status, "timeout", ...
  std::string message;     // for people; no header, no credential
};

// Called by one thread, except cancel().
class Exporter {
 public:
  virtual ~Exporter() = default;
  // One attempt at one ExportTraceServiceRequest, ExportLogsServiceRequest or ExportMetricsServiceRequest in protobuf.
  // Blocks up to the export timeout.
  virtual ExportResult send(std::string_view request) = 0;
  // From any thread: makes a running send() return soon and every later one at once, with kRetry.
  virtual void cancel() = 0;
};

// Fails where a file that the settings name cannot be read or written.
Result<std::unique_ptr<Exporter>> make_exporter(Signal signal, const SignalSettings& settings);

}  // namespace tuft::telemetry::internal
