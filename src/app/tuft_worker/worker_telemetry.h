// The telemetry configuration that the server handed to this worker.
#pragma once

#include <string>

#include "base/result.h"
#include "telemetry/telemetry.h"

namespace tuft::app {

// From the environment, where it is taken away so that no child of ours sees it; telemetry is off where it is absent.
// Adds what tells this process from the server: tuft.process, tuft.base_model and a service.instance.id of its own.
Result<telemetry::TelemetryConfig> take_telemetry_config(const std::string& base_model);

}  // namespace tuft::app
