// Converts the environment variables of FastDeploy's tracing to a TelemetryConfig.
#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <string>

#include "base/text.h"
#include "telemetry/log.h"
#include "telemetry/request/request_table.h"
#include "telemetry/request_trace.h"
#include "telemetry/settings/environment.h"
#include "telemetry/settings/signal_settings.h"
#include "telemetry/telemetry.h"

namespace tuft::telemetry {
namespace {

using internal::environment;

// Parses "key=value,key=value". A value ends at the next comma and may contain '='. Messages show neither keys nor
// values, which may be secrets.
Status read_headers(std::string_view text, std::map<std::string, std::string>& headers) {
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), pair.size() + 1));
    if (trimmed(pair).empty()) continue;
    const size_t equals = pair.find('=');
    const std::string_view key = trimmed(pair.substr(0, equals));
    if (equals == std::string_view::npos || key.empty()) {
      return invalid_argument("EXPORTER_OTLP_HEADERS has an entry without '=': write key=value,key2=value2",
                              "telemetry_headers");
    }
    const auto bad = [](unsigned char c) { return !std::isalnum(c) && c != '-' && c != '_' && c != '.'; };
    if (std::any_of(key.begin(), key.end(), bad)) {
      return invalid_argument("EXPORTER_OTLP_HEADERS: header names may contain only letters, digits, -, _ and .",
                              "telemetry_headers");
    }
    headers[std::string(key)] = std::string(trimmed(pair.substr(equals + 1)));
  }
  return {};
}

Result<Protocol> read_protocol() {
  const std::string exporter = environment("TRACES_EXPORTER");
  if (exporter == "console") return Protocol::kConsole;
  if (!exporter.empty() && exporter != "otlp") {
    return invalid_argument("TRACES_EXPORTER is '" + exporter + "': write otlp or console", "telemetry_protocol");
  }
  const std::string protocol = environment("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL");
  if (protocol.empty() || protocol == "grpc") return Protocol::kGrpc;
  if (protocol == "http/protobuf") return Protocol::kHttpProtobuf;
  return invalid_argument("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is '" + protocol + "': write grpc or http/protobuf",
                          "telemetry_protocol");
}

Result<std::optional<int64_t>> read_positive(const char* name) {
  const std::string text = environment(name);
  if (text.empty()) return std::optional<int64_t>();
  const std::optional<int64_t> value = internal::parse_whole(text);
  if (!value || *value <= 0 || *value > 1'000'000'000)
    return invalid_argument(std::string(name) + " is '" + text + "': write a positive number", "telemetry");
  return value;
}

Result<TelemetryConfig> config_from_environment() {
  TelemetryConfig config{.enabled = true};
  // FastDeploy exports traces only; a program that wants metrics and logs too calls init_telemetry().
  config.metrics.enabled = false;
  config.logs.enabled = false;
  config.metrics_endpoint = false;
  if (const std::string name = environment("FD_SERVICE_NAME"); !name.empty()) config.service_name = name;
  if (const std::string host = environment("FD_HOST_NAME"); !host.empty())
    config.resource_attributes["host.name"] = host;
  TUFT_ASSIGN(config.protocol, read_protocol());
  // Python's exporter does not change the address: for HTTP, its users include the path.
  if (const std::string endpoint = environment("EXPORTER_OTLP_ENDPOINT"); !endpoint.empty())
    (internal::has_path(endpoint) ? config.traces.endpoint : config.otlp_endpoint) = endpoint;
  TUFT_TRY(read_headers(environment("EXPORTER_OTLP_HEADERS"), config.headers));
  TUFT_ASSIGN(const auto delay, read_positive("FD_OTLP_EXPORTER_SCHEDULE_DELAY_MILLIS"));
  config.batch_delay = delay.value_or(500) * kMillisecond;
  TUFT_ASSIGN(config.batch_max, read_positive("FD_OTLP_EXPORTER_MAX_EXPORT_BATCH_SIZE"));
  return config;
}

Status start_from_environment() {
  TUFT_ASSIGN(const TelemetryConfig config, config_from_environment());
  Status status = init_telemetry(config);
  if (status.ok()) return status;
  // The user set a variable and may not know the configuration key.
  Error error = status.error();
  for (const std::string_view key : {"telemetry.otlp_endpoint", "telemetry.traces.endpoint"}) {
    if (const size_t at = error.message.find(key); at != std::string::npos)
      error.message.replace(at, key.size(), "EXPORTER_OTLP_ENDPOINT");
  }
  return error;
}

}  // namespace

Status process_tracing_init() {
  if (telemetry_enabled()) return {};
  if (!internal::is_true(environment("TRACES_ENABLE"))) {
    log_info("request_trace.disabled", "request tracing is off; TRACES_ENABLE=true switches it on");
    return {};
  }
  Status status = start_from_environment();
  if (!status.ok()) {
    log_error("request_trace.not_started", "request tracing stays off: " + status.error().message);
  }
  return status;
}

void process_tracing_shutdown(Nanos budget) {
  internal::end_idle(0, "tuft.trace.unfinished");
  shutdown_telemetry(budget);
}

}  // namespace tuft::telemetry
