// TelemetryConfig as JSON, for handing it to a worker process, without the metrics token. It holds header values: pass
// it where only the same user can read it (an environment variable), never in a command line or a log.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "telemetry/telemetry.h"

namespace tuft::telemetry {

// The variable in which a server hands it to its workers.
inline constexpr const char* kTelemetryVariable = "TUFT_WORKER_TELEMETRY";

std::string to_json(const TelemetryConfig& config);

// What to_json() wrote. Fails on anything else; no message shows a value.
Result<TelemetryConfig> telemetry_config_from_json(std::string_view json);

}  // namespace tuft::telemetry
