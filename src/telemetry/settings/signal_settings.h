// The export settings of one signal, a part of read_settings(). Internal to telemetry.
#pragma once

#include <string_view>

#include "base/result.h"
#include "telemetry/settings/settings.h"

namespace tuft::telemetry::internal {

// The names of a signal in keys, variables and paths.
struct SignalKey {
  std::string_view lower;  // "traces": telemetry.traces, /v1/traces
  std::string_view upper;  // "TRACES": OTEL_TRACES_EXPORTER
  const SignalConfig& config;
};

// Returns true if an address, "[scheme://]host[:port][/path]", has a path other than "/". Such an address is for one
// signal only.
bool has_path(std::string_view address);

// Sets protocol, endpoint, TLS, headers, compression and timeout in `out`, which must hold the defaults.
Status read_signal(const TelemetryConfig& config, const SignalKey& signal, SignalSettings& out);

}  // namespace tuft::telemetry::internal
