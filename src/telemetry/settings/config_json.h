// TelemetryConfig as JSON, without the metrics token, for passing it to a worker process. It contains header values,
// which may be secrets: pass it in an environment variable, never on a command line or in a log.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "telemetry/telemetry.h"

namespace tuft::telemetry {

// The environment variable in which a server passes the configuration to its workers.
inline constexpr const char* kTelemetryVariable = "TUFT_WORKER_TELEMETRY";

std::string to_json(const TelemetryConfig& config);

// Parses the result of to_json(). Fails on anything else; messages show no value.
Result<TelemetryConfig> telemetry_config_from_json(std::string_view json);

}  // namespace tuft::telemetry
