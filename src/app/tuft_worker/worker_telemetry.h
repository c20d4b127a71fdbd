// The telemetry configuration that the server passes to this worker.
#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "telemetry/telemetry.h"

namespace tuft::app {

// Reads the configuration; without text, telemetry is off. Adds the attributes of this process: tuft.process,
// tuft.base_model, its own service.instance.id, and `launcher`, those of what placed it. The metrics that it exports
// get the label `worker`, which they also have on the server's metrics page.
Result<telemetry::TelemetryConfig> telemetry_config_of(const std::string& text, const std::string& base_model,
                                                       const std::map<std::string, std::string>& launcher = {});

// The same with the text in the environment variable, which is removed, so that no child process sees it.
Result<telemetry::TelemetryConfig> take_telemetry_config(const std::string& base_model);

}  // namespace tuft::app
