// Where and how one signal leaves the process. Internal to telemetry; a part of read_settings().
#pragma once

#include <string_view>

#include "base/result.h"
#include "telemetry/settings.h"

namespace tuft::telemetry::internal {

// What tells the signals apart in names of keys, variables and paths.
struct SignalKey {
  std::string_view lower;  // "traces": telemetry.traces, /v1/traces
  std::string_view upper;  // "TRACES": OTEL_TRACES_EXPORTER
  const SignalConfig& config;
};

// Whether an address, "[scheme://]host[:port][/path]", has more behind the host than a slash: it is one signal's then.
bool has_path(std::string_view address);

// Protocol, endpoint, TLS, headers, compression and timeout. `out` comes with its defaults.
Status read_signal(const TelemetryConfig& config, const SignalKey& signal, SignalSettings& out);

}  // namespace tuft::telemetry::internal
