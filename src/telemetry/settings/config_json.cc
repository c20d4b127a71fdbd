#include "telemetry/settings/config_json.h"

#include <exception>
#include <type_traits>

#include <nlohmann/json.hpp>

namespace tuft::telemetry {
namespace {

using Json = nlohmann::json;

template <typename Signal, typename Visit>
void for_each_signal_field(Signal& signal, const std::string& prefix, Visit& visit) {
  visit(prefix + "enabled", signal.enabled);
  visit(prefix + "protocol", signal.protocol);
  visit(prefix + "endpoint", signal.endpoint);
  visit(prefix + "headers", signal.headers);
  visit(prefix + "compression", signal.compression);
  visit(prefix + "tls.ca_file", signal.tls.ca_file);
  visit(prefix + "tls.certificate_file", signal.tls.certificate_file);
  visit(prefix + "tls.key_file", signal.tls.key_file);
  visit(prefix + "export_timeout", signal.export_timeout);
  visit(prefix + "batch_delay", signal.batch_delay);
  visit(prefix + "batch_max", signal.batch_max);
  visit(prefix + "queue_max", signal.queue_max);
}

// Lists the fields once for both directions, so that they cannot differ. Calls `visit(key, field)`.
template <typename Config, typename Visit>
void for_each_field(Config& config, Visit&& visit) {
  visit("enabled", config.enabled);
  visit("outbox", config.outbox);
  visit("service_name", config.service_name);
  visit("otlp_endpoint", config.otlp_endpoint);
  visit("resource_attributes", config.resource_attributes);
  visit("protocol", config.protocol);
  visit("headers", config.headers);
  visit("compression", config.compression);
  visit("tls.ca_file", config.tls.ca_file);
  visit("tls.certificate_file", config.tls.certificate_file);
  visit("tls.key_file", config.tls.key_file);
  visit("file_path", config.file_path);
  visit("export_timeout", config.export_timeout);
  for_each_signal_field(config.traces, "traces.", visit);
  for_each_signal_field(config.metrics, "metrics.", visit);
  for_each_signal_field(config.logs, "logs.", visit);
  visit("logs.level", config.log_level);
  visit("sampler", config.sampler);
  visit("sampling_ratio", config.sampling_ratio);
  visit("keep_errors", config.keep_errors);
  visit("keep_slower_than", config.keep_slower_than);
  visit("metric_interval", config.metric_interval);
  visit("temporality", config.temporality);
  visit("exemplar_filter", config.exemplar_filter);
  visit("histogram_aggregation", config.histogram_aggregation);
  visit("batch_delay", config.batch_delay);
  visit("batch_max", config.batch_max);
  visit("queue_max", config.queue_max);
  visit("trace_archive_bytes", config.trace_archive_bytes);
  visit("shutdown_budget", config.shutdown_budget);
  visit("propagate_trace_context", config.propagate_trace_context);
  visit("propagate_baggage", config.propagate_baggage);
  visit("own_log_level", config.own_log_level);
  visit("environment_ignored", config.environment_ignored);
  visit("metrics_endpoint", config.metrics_endpoint);
  visit("tenant_label", config.tenant_label);
}

template <typename T>
Json encoded(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return static_cast<int>(value);
  } else {
    return value;
  }
}

template <typename T>
T decoded(const Json& json) {
  if constexpr (std::is_enum_v<T>) {
    return static_cast<T>(json.get<uint8_t>());
  } else {
    return json.get<T>();
  }
}

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

}  // namespace

std::string to_json(const TelemetryConfig& config) {
  Json root = Json::object();
  for_each_field(config, [&root](const std::string& key, const auto& field) {
    if constexpr (IsOptional<std::remove_cvref_t<decltype(field)>>::value) {
      if (field) root[key] = encoded(*field);
    } else {
      root[key] = encoded(field);
    }
  });
  // Texts of the configuration are bytes from a user. Invalid UTF-8 in them is replaced and is not an error.
  return root.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<TelemetryConfig> telemetry_config_from_json(std::string_view json) {
  const Json root = Json::parse(json, nullptr, false);
  if (!root.is_object()) return invalid_argument("the telemetry configuration is not a JSON object", "telemetry");
  TelemetryConfig config;
  std::string wrong;
  size_t known = 0;
  for_each_field(config, [&](const std::string& key, auto& field) {
    using Field = std::remove_cvref_t<decltype(field)>;
    const auto found = root.find(key);
    if (found == root.end()) return;
    ++known;
    try {
      if constexpr (IsOptional<Field>::value) {
        field = decoded<typename Field::value_type>(*found);
      } else {
        field = decoded<Field>(*found);
      }
    } catch (const std::exception&) {
      wrong = key;
    }
  });
  if (!wrong.empty()) return invalid_argument("the telemetry configuration: '" + wrong + "' has the wrong type");
  if (known != root.size()) return invalid_argument("the telemetry configuration has an unknown key");
  return config;
}

}  // namespace tuft::telemetry
