// The telemetry configuration that the server passes to this worker.
#pragma once

#include <string>

#include "base/result.h"
#include "telemetry/telemetry.h"

namespace tuft::app {

// Reads the environment variable and removes it, so that no child process sees it; without it telemetry is off. Adds
// the attributes of this process: tuft.process, tuft.base_model and its own service.instance.id. The metrics that it
// exports get the label `worker`, which they also have on the server's metrics page.
Result<telemetry::TelemetryConfig> take_telemetry_config(const std::string& base_model);

}  // namespace tuft::app
