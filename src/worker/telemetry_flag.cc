#include "worker/telemetry_flag.h"

#include <nlohmann/json.hpp>

namespace tuft::worker {
namespace {

Error wrong(const std::string& key, const char* what) {
  return invalid_argument("--telemetry: '" + key + "' must be " + what);
}

}  // namespace

Result<telemetry::TelemetryConfig> parse_telemetry(std::string_view json, const std::string& base_model) {
  telemetry::TelemetryConfig config;
  const auto root = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return invalid_argument("--telemetry must be a JSON object");
  for (const auto& [key, value] : root.items()) {
    if (key == "enabled") {
      if (!value.is_boolean()) return wrong(key, "true or false");
      config.enabled = value.get<bool>();
    } else if (key == "service_name") {
      if (!value.is_string()) return wrong(key, "a string");
      config.service_name = value.get<std::string>();
    } else if (key == "otlp_endpoint") {
      if (!value.is_string()) return wrong(key, "a string");
      config.otlp_endpoint = value.get<std::string>();
    } else if (key == "resource_attributes") {
      if (!value.is_object()) return wrong(key, "an object");
      for (const auto& [name, attribute] : value.items()) {
        if (!attribute.is_string()) return wrong(key, "an object of strings");
        config.resource_attributes[name] = attribute.get<std::string>();
      }
    } else {
      return invalid_argument("--telemetry: unknown key '" + key + "'");
    }
  }
  config.resource_attributes["tuft.process"] = "worker";
  config.resource_attributes["tuft.base_model"] = base_model;
  return config;
}

}  // namespace tuft::worker
