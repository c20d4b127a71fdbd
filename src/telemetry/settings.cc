#include "telemetry/settings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "telemetry/log.h"

namespace tuft::telemetry::internal {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view(value);
}

bool is_true(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower == "true" || lower == "1";
}

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <typename T>
void read_positive(const char* name, int64_t unit, T& out) {
  constexpr int64_t kMax = 1'000'000'000;
  const auto value = parse_number(environment(name));
  if (value && *value > 0 && *value <= kMax) out = static_cast<T>(*value * unit);
}

// A plain number is milliseconds, as the specification says; one with a unit is left to the exporter.
void read_timeout(const std::string& signal, Nanos& timeout) {
  std::string_view text = environment(("OTEL_EXPORTER_OTLP_" + signal + "_TIMEOUT").c_str());
  if (text.empty()) text = environment("OTEL_EXPORTER_OTLP_TIMEOUT");
  if (text.empty()) return;
  const auto number = parse_number(text);
  if (number && *number > 0) timeout = std::min<int64_t>(*number, 3'600'000) * kMillisecond;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr == text.data() + i + 3) {
      out += static_cast<char>(value);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// "1" for what is no ratio, as OpenTelemetry asks.
uint64_t ratio_threshold(std::string_view text) {
  double ratio = 1;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), ratio);
  if (problem != std::errc{} || end != text.data() + text.size() || !(ratio >= 0 && ratio < 1)) return UINT64_MAX;
  return static_cast<uint64_t>(ratio * 0x1p64);
}

void read_sampler(Settings& settings) {
  std::string_view name = environment("OTEL_TRACES_SAMPLER");
  if (name.empty()) return;
  constexpr std::string_view kParentBased = "parentbased_";
  const bool parent_based = name.starts_with(kParentBased);
  if (parent_based) name.remove_prefix(kParentBased.size());
  if (name == "always_off") {
    settings.sampling_threshold = 0;
  } else if (name == "traceidratio") {
    settings.sampling_threshold = ratio_threshold(environment("OTEL_TRACES_SAMPLER_ARG"));
  } else if (name != "always_on") {
    log_warning("telemetry.unknown_sampler",
                "OTEL_TRACES_SAMPLER is none of [parentbased_]always_on, always_off, traceidratio: every trace is kept",
                {{"value", name}});
    return;
  }
  settings.sampling_parent_based = parent_based;
}

// "key=value,key=value"; what is malformed is skipped.
void read_resource_attributes(std::map<std::string, std::string>& attributes) {
  std::string_view rest = environment("OTEL_RESOURCE_ATTRIBUTES");
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view key = trimmed(pair.substr(0, equals));
    if (!key.empty()) attributes[std::string(key)] = percent_decoded(trimmed(pair.substr(equals + 1)));
  }
}

bool is_host(std::string_view host) {
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    const std::string_view address = host.substr(1, host.size() - 2);
    return address.find_first_not_of("0123456789abcdefABCDEF:.%") == std::string_view::npos && !address.empty();
  }
  return !host.empty() && std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '-' || c == '_';
  });
}

Error bad_endpoint(std::string_view key, std::string_view value) {
  return invalid_argument(std::string(key) + " '" + std::string(value) +
                              "' is no collector's address: write http://host:4317, https://host:4317 or host:4317",
                          "telemetry_endpoint");
}

Status parse_endpoint(std::string_view key, std::string_view value, Settings& settings) {
  std::string_view rest = value;
  const size_t scheme_end = value.find("://");
  bool tls = false;
  if (scheme_end == std::string_view::npos) {
    tls = !is_true(environment("OTEL_EXPORTER_OTLP_INSECURE"));
  } else {
    const std::string_view scheme = value.substr(0, scheme_end);
    if (scheme != "http" && scheme != "https") return bad_endpoint(key, value);
    tls = scheme == "https";
    rest.remove_prefix(scheme_end + 3);
  }
  // gRPC knows no path; one slash at the end is a habit.
  const std::string_view authority = rest.substr(0, rest.find('/'));
  std::string_view host = authority;
  const size_t colon = authority.rfind(':');
  if (colon != std::string_view::npos && authority.find(']', colon) == std::string_view::npos) {
    const auto port = parse_number(authority.substr(colon + 1));
    if (!port || *port < 1 || *port > 65535) return bad_endpoint(key, value);
    host = authority.substr(0, colon);
  }
  if (!is_host(host)) return bad_endpoint(key, value);
  std::string endpoint(authority);
  if (host.size() == authority.size()) endpoint += ":4317";
  for (SignalSettings* signal : {&settings.traces, &settings.logs, &settings.metrics}) {
    signal->tls = tls;
    signal->endpoint = endpoint;
  }
  return {};
}

Status read_endpoint(const TelemetryConfig& config, Settings& settings) {
  if (config.otlp_endpoint && !config.otlp_endpoint->empty())
    return parse_endpoint("telemetry.otlp_endpoint", *config.otlp_endpoint, settings);
  const std::string_view variable = environment("TUFT_OTLP_ENDPOINT");
  if (!variable.empty()) return parse_endpoint("TUFT_OTLP_ENDPOINT", variable, settings);
  return {};
}

}  // namespace

Result<Settings> read_settings(const TelemetryConfig& config) {
  Settings settings;
  settings.enabled = config.enabled && !is_true(environment("OTEL_SDK_DISABLED"));
  const bool console = environment("TUFT_OTEL_DEBUG") == "1";
  // The console needs no address: a wrong one may be what somebody is looking for with it.
  if (!console) TUFT_TRY(read_endpoint(config, settings));
  for (SignalSettings* signal : {&settings.traces, &settings.logs, &settings.metrics})
    signal->protocol = console ? Protocol::kConsole : Protocol::kGrpc;

  read_positive("OTEL_BSP_SCHEDULE_DELAY", kMillisecond, settings.traces.interval);
  read_positive("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 1, settings.traces.batch_max);
  read_positive("OTEL_BSP_MAX_QUEUE_SIZE", 1, settings.traces.queue_max);
  read_positive("OTEL_BLRP_SCHEDULE_DELAY", kMillisecond, settings.logs.interval);
  read_positive("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", 1, settings.logs.batch_max);
  read_positive("OTEL_BLRP_MAX_QUEUE_SIZE", 1, settings.logs.queue_max);
  read_positive("OTEL_METRIC_EXPORT_INTERVAL", kMillisecond, settings.metrics.interval);
  read_timeout("TRACES", settings.traces.export_timeout);
  read_timeout("LOGS", settings.logs.export_timeout);
  read_timeout("METRICS", settings.metrics.export_timeout);

  read_sampler(settings);

  // A name in the configuration wins; OTEL_SERVICE_NAME speaks where nobody chose one.
  settings.service_name = config.service_name;
  const std::string_view name = environment("OTEL_SERVICE_NAME");
  if (config.service_name == TelemetryConfig{}.service_name && !name.empty()) settings.service_name = name;
  read_resource_attributes(settings.resource_attributes);
  // As an attribute the environment's name is weaker than either.
  settings.resource_attributes.erase("service.name");
  for (const auto& [key, value] : config.resource_attributes) settings.resource_attributes[key] = value;
  return settings;
}

}  // namespace tuft::telemetry::internal
