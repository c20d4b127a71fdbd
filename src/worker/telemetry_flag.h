// The --telemetry flag: the server's telemetry configuration, as JSON.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "telemetry/telemetry.h"

namespace tuft::worker {

// {"enabled": bool, "service_name": str, "otlp_endpoint": str, "resource_attributes": {str: str}}; every key may be
// absent, others are refused. Adds what tells this process from the server's: tuft.process and tuft.base_model.
Result<telemetry::TelemetryConfig> parse_telemetry(std::string_view json, const std::string& base_model);

}  // namespace tuft::worker
