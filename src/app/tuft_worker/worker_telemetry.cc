#include "app/tuft_worker/worker_telemetry.h"

#include <utility>

#include "app/tuft_worker/secret_variable.h"
#include "base/id.h"
#include "telemetry/settings/config_json.h"

namespace tuft::app {

Result<telemetry::TelemetryConfig> telemetry_config_of(const std::string& text, const std::string& base_model,
                                                       const std::map<std::string, std::string>& launcher) {
  telemetry::TelemetryConfig config;
  if (!text.empty()) {
    TUFT_ASSIGN(config, telemetry::telemetry_config_from_json(text));
  }
  for (const auto& [key, value] : launcher) config.resource_attributes[key] = value;
  config.resource_attributes["tuft.process"] = "worker";
  config.resource_attributes["tuft.base_model"] = base_model;
  // An instance id from the configuration or from OTEL_RESOURCE_ATTRIBUTES belongs to the server.
  config.resource_attributes["service.instance.id"] = random_uuid();
  config.metric_labels["worker"] = base_model;
  return config;
}

Result<telemetry::TelemetryConfig> take_telemetry_config(const std::string& base_model) {
  return telemetry_config_of(take_variable(telemetry::kTelemetryVariable), base_model);
}

}  // namespace tuft::app
