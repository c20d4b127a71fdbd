#include "app/tuft_worker/worker_telemetry.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/id.h"
#include "telemetry/config_json.h"

namespace tuft::app {

Result<telemetry::TelemetryConfig> take_telemetry_config(const std::string& base_model) {
  telemetry::TelemetryConfig config;
  if (char* const json = std::getenv(telemetry::kTelemetryVariable)) {
    auto handed_over = telemetry::telemetry_config_from_json(json);
    // Where the process began, /proc shows it for as long as it runs.
    std::memset(json, 0, std::strlen(json));
    ::unsetenv(telemetry::kTelemetryVariable);
    TUFT_ASSIGN(config, std::move(handed_over));
  }
  config.resource_attributes["tuft.process"] = "worker";
  config.resource_attributes["tuft.base_model"] = base_model;
  // One that the file or OTEL_RESOURCE_ATTRIBUTES gives is the server's.
  config.resource_attributes["service.instance.id"] = random_uuid();
  return config;
}

}  // namespace tuft::app
