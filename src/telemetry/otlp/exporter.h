// The port to a destination of encoded telemetry: one exporter per signal. Internal to telemetry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "telemetry/settings/settings.h"

namespace tuft::telemetry::internal {

enum class Signal : uint8_t { kTraces, kLogs, kMetrics };
inline constexpr size_t kSignals = 3;
// Returns "traces", "logs" or "metrics".
std::string_view signal_name(Signal signal);

struct ExportResult {
  enum class Outcome : uint8_t {
    kDelivered,
    kRetry,   // the collector is unavailable or busy; the same bytes may be sent again
    kRefused  // the collector would refuse the same bytes again
  };
  Outcome outcome = Outcome::kDelivered;
  // The number of records in a delivered request that the collector rejected (partial success).
  int64_t rejected = 0;
  // The time that the collector asks to wait before a retry; 0: none.
  Nanos retry_after = 0;
  std::string error_type;  // the metrics' error.type: the name of a gRPC code, an HTTP status, "timeout", ...
  std::string message;     // a text for people without headers and credentials
};

// Confined to one thread, except for cancel().
class Exporter {
 public:
  virtual ~Exporter() = default;
  // Makes one attempt to send an encoded ExportTraceServiceRequest, ExportLogsServiceRequest or
  // ExportMetricsServiceRequest. Blocks at most for the export timeout.
  virtual ExportResult send(std::string_view request) = 0;
  // Makes a running send() return soon and every later one at once, with kRetry. Thread-safe.
  virtual void cancel() = 0;
};

// Returns an error if a file that the settings name cannot be read or written.
Result<std::unique_ptr<Exporter>> make_exporter(Signal signal, const SignalSettings& settings);

}  // namespace tuft::telemetry::internal
