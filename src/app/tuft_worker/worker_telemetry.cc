#include "app/tuft_worker/worker_telemetry.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/id.h"
#include "telemetry/settings/config_json.h"

namespace tuft::app {

Result<telemetry::TelemetryConfig> take_telemetry_config(const std::string& base_model) {
  telemetry::TelemetryConfig config;
  if (char* const json = std::getenv(telemetry::kTelemetryVariable)) {
    auto handed_over = telemetry::telemetry_config_from_json(json);
    // /proc shows the initial environment as long as the process runs, so overwrite the value.
    std::memset(json, 0, std::strlen(json));
    ::unsetenv(telemetry::kTelemetryVariable);
    TUFT_ASSIGN(config, std::move(handed_over));
  }
  config.resource_attributes["tuft.process"] = "worker";
  config.resource_attributes["tuft.base_model"] = base_model;
  // An instance id from the configuration or from OTEL_RESOURCE_ATTRIBUTES belongs to the server.
  config.resource_attributes["service.instance.id"] = random_uuid();
  config.metric_labels["worker"] = base_model;
  return config;
}

}  // namespace tuft::app
