#include "telemetry/settings/settings.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/text.h"
#include "telemetry/settings/environment.h"
#include "telemetry/settings/signal_settings.h"

namespace tuft::telemetry::internal {
namespace {

// Reads the first variable that is set into `out` if it is a positive number.
template <typename T>
void read_positive(std::initializer_list<std::string> names, int64_t unit, T& out) {
  constexpr int64_t kMax = 1'000'000'000;
  const Setting setting = first_set(names);
  if (!setting) return;
  const auto value = parse_whole(setting.value);
  if (value && *value > 0 && *value <= kMax) {
    out = static_cast<T>(*value * unit);
  } else {
    warn_ignored(setting.name, "must be a whole number above 0; the default is used");
  }
}

void read_batches(const TelemetryConfig& config, const SignalConfig& signal, const std::string& prefix,
                  SignalSettings& out) {
  read_positive({prefix + "_SCHEDULE_DELAY"}, kMillisecond, out.interval);
  read_positive({prefix + "_MAX_EXPORT_BATCH_SIZE"}, 1, out.batch_max);
  read_positive({prefix + "_MAX_QUEUE_SIZE"}, 1, out.queue_max);
  const auto delay = signal.batch_delay ? signal.batch_delay : config.batch_delay;
  const auto batch_max = signal.batch_max ? signal.batch_max : config.batch_max;
  const auto queue_max = signal.queue_max ? signal.queue_max : config.queue_max;
  if (delay) out.interval = *delay;
  if (batch_max) out.batch_max = static_cast<size_t>(*batch_max);
  if (queue_max) out.queue_max = static_cast<size_t>(*queue_max);
  out.batch_max = std::min(out.batch_max, out.queue_max);
}

void read_temporality(const TelemetryConfig& config, Settings& settings) {
  const Setting setting = first_set({"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"});
  const std::string word = lower_case(setting.value);
  if (config.temporality) {
    settings.temporality = *config.temporality;
  } else if (word == "delta") {
    settings.temporality = Temporality::kDelta;
  } else if (word == "lowmemory") {
    settings.temporality = Temporality::kLowMemory;
  } else if (setting && word != "cumulative") {
    warn_ignored(setting.name, "must be cumulative, delta or lowmemory; cumulative is used");
  }
}

// Returns the index of the word in `words`; nullopt, with a warning, for another word.
template <size_t kWords>
std::optional<size_t> read_word(const Setting& setting, const std::string_view (&words)[kWords]) {
  if (!setting) return std::nullopt;
  const auto* const found = std::find(std::begin(words), std::end(words), lower_case(setting.value));
  if (found != std::end(words)) return static_cast<size_t>(found - std::begin(words));
  std::string list;
  for (const std::string_view word : words) list += (list.empty() ? "" : ", ") + std::string(word);
  warn_ignored(setting.name, "must be one of " + list + "; the first is used");
  return std::nullopt;
}

void read_histograms(const TelemetryConfig& config, Settings& settings) {
  const auto filter = read_word(first_set({"OTEL_METRICS_EXEMPLAR_FILTER"}), kExemplarFilterWords);
  if (filter) settings.exemplar_filter = static_cast<ExemplarFilter>(*filter);
  const auto aggregation =
      read_word(first_set({"OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"}), kHistogramAggregationWords);
  if (aggregation) settings.histogram_aggregation = static_cast<HistogramAggregation>(*aggregation);
  if (config.exemplar_filter) settings.exemplar_filter = *config.exemplar_filter;
  if (config.histogram_aggregation) settings.histogram_aggregation = *config.histogram_aggregation;
}

void read_metric_pace(const TelemetryConfig& config, Settings& settings) {
  // The second name is a common misspelling of the standard name.
  read_positive({"OTEL_METRIC_EXPORT_INTERVAL", "OTEL_METRICS_EXPORT_INTERVAL"}, kMillisecond,
                settings.metrics.interval);
  if (config.metric_interval) settings.metrics.interval = *config.metric_interval;
  read_temporality(config, settings);
}

std::optional<double> parse_ratio(std::string_view text) {
  double ratio = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), ratio);
  if (problem != std::errc{} || end != text.data() + text.size() || !(ratio >= 0 && ratio <= 1)) return std::nullopt;
  return ratio;
}

uint64_t ratio_threshold(double ratio) {
  return ratio >= 1 ? UINT64_MAX : static_cast<uint64_t>(ratio * 0x1p64);
}

// Returns 1 by default, as OpenTelemetry requires.
double read_ratio(const TelemetryConfig& config) {
  if (config.sampling_ratio) return *config.sampling_ratio;
  const Setting setting = first_set({"OTEL_TRACES_SAMPLER_ARG"});
  if (!setting) return 1;
  const auto ratio = parse_ratio(setting.value);
  if (!ratio) warn_ignored(setting.name, "must be a ratio between 0 and 1; every trace is sampled");
  return ratio.value_or(1);
}

// Returns false if there is no such sampler.
bool apply_sampler(std::string_view name, const TelemetryConfig& config, Settings& settings) {
  constexpr std::string_view kParentBased = "parentbased_";
  const bool parent_based = name.starts_with(kParentBased);
  if (parent_based) name.remove_prefix(kParentBased.size());
  if (name == "always_off") {
    settings.sampling_threshold = 0;
    // The user wants no traces, so none is recorded because of errors unless the configuration requires it.
    settings.keep_errors = false;
  } else if (name == "traceidratio") {
    settings.sampling_threshold = ratio_threshold(read_ratio(config));
  } else if (name != "always_on") {
    return false;
  }
  settings.sampling_parent_based = parent_based;
  return true;
}

Status read_sampling(const TelemetryConfig& config, Settings& settings) {
  constexpr std::string_view kNames = "[parentbased_]always_on, always_off, traceidratio";
  const Setting variable = first_set({"OTEL_TRACES_SAMPLER"});
  if (config.sampler) {
    if (!apply_sampler(*config.sampler, config, settings))
      return invalid_argument("telemetry.sampler must be one of " + std::string(kNames), "telemetry");
  } else if (config.sampling_ratio) {
    apply_sampler("parentbased_traceidratio", config, settings);
  } else if (variable && !apply_sampler(variable.value, config, settings)) {
    warn_ignored(variable.name, "must be one of " + std::string(kNames) + "; every trace is sampled");
  }
  if (config.keep_errors) settings.keep_errors = *config.keep_errors;
  settings.keep_slower_than = config.keep_slower_than.value_or(0);
  settings.trace_archive_bytes = static_cast<size_t>(config.trace_archive_bytes);
  return {};
}

void read_propagators(const TelemetryConfig& config, Settings& settings) {
  if (const Setting setting = first_set({"OTEL_PROPAGATORS"})) {
    settings.propagate_trace_context = false;
    for (std::string_view rest = setting.value; !rest.empty();) {
      const std::string_view item = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), item.size() + 1));
      const std::string_view name = trimmed(item);
      if (name == "tracecontext") {
        settings.propagate_trace_context = true;
      } else if (name == "baggage") {
        settings.propagate_baggage = true;
      } else if (name != "none") {
        warn_ignored(setting.name, "may contain tracecontext, baggage and none; other names are ignored");
      }
    }
  }
  if (config.propagate_trace_context) settings.propagate_trace_context = *config.propagate_trace_context;
  if (config.propagate_baggage) settings.propagate_baggage = *config.propagate_baggage;
}

// A service name in the configuration overrides the environment.
void read_resource(const TelemetryConfig& config, Settings& settings) {
  int malformed = 0;
  settings.resource_attributes = parse_pairs(environment("OTEL_RESOURCE_ATTRIBUTES"), malformed);
  if (malformed > 0) warn_ignored("OTEL_RESOURCE_ATTRIBUTES", "must be key=value,key=value; other entries are ignored");
  const auto take_name = [&settings]() {
    auto node = settings.resource_attributes.extract("service.name");
    return node.empty() ? std::string() : node.mapped();
  };
  const std::string weak = take_name();
  if (const Setting host = first_set({"FD_HOST_NAME"}))
    settings.resource_attributes.try_emplace("host.name", host.value);
  for (const auto& [key, value] : config.resource_attributes) settings.resource_attributes[key] = value;
  settings.service_name = take_name();
  if (!settings.service_name.empty()) return;
  settings.service_name = config.service_name.value_or("tuft");
  if (config.service_name) return;
  if (const Setting name = first_set({"OTEL_SERVICE_NAME"})) {
    settings.service_name = name.value;
  } else if (!weak.empty()) {
    settings.service_name = weak;
  } else if (const Setting fastdeploy = first_set({"FD_SERVICE_NAME"})) {
    settings.service_name = fastdeploy.value;
  }
}

void read_log_level(const TelemetryConfig& config, Settings& settings) {
  const Setting setting =
      config.own_log_level ? Setting{"log_level", *config.own_log_level} : first_set({"OTEL_LOG_LEVEL"});
  if (!setting) return;
  const std::string word = lower_case(setting.value);
  settings.own_log_level_said = true;
  if (word == "none" || word == "off" || word == "fatal") {
    settings.own_log_level = std::nullopt;
  } else if (const auto level = parse_severity(word); level.ok()) {
    settings.own_log_level = *level;
  } else if (word == "trace" || word == "all" || word == "verbose") {
    settings.own_log_level = Severity::kDebug;
  } else {
    settings.own_log_level_said = false;
    warn_ignored(setting.name, "must be debug, info, warn, error or none");
  }
}

}  // namespace

Result<Settings> read_settings(const TelemetryConfig& config) {
  const EnvironmentIgnored ignored(config.environment_ignored);
  Settings settings;
  settings.metrics_endpoint = config.metrics_endpoint;
  settings.metric_labels = config.metric_labels;
  const bool sdk_disabled = is_true(environment("OTEL_SDK_DISABLED"));
  settings.enabled = config.enabled && !sdk_disabled;
  settings.outbox = config.outbox && !sdk_disabled;
  read_resource(config, settings);
  read_log_level(config, settings);
  settings.exported_log_level = config.log_level.value_or(Severity::kDebug);
  if (config.shutdown_budget) settings.shutdown_budget = *config.shutdown_budget;
  read_histograms(config, settings);
  if (!settings.enabled) {
    for (SignalSettings* signal : {&settings.traces, &settings.logs, &settings.metrics})
      signal->protocol = Protocol::kNone;
    if (settings.outbox) {
      TUFT_TRY(read_sampling(config, settings));
      read_propagators(config, settings);
    }
    return settings;
  }
  TUFT_TRY(read_signal(config, {"traces", "TRACES", config.traces}, settings.traces));
  TUFT_TRY(read_signal(config, {"logs", "LOGS", config.logs}, settings.logs));
  TUFT_TRY(read_signal(config, {"metrics", "METRICS", config.metrics}, settings.metrics));
  read_batches(config, config.traces, "OTEL_BSP", settings.traces);
  read_batches(config, config.logs, "OTEL_BLRP", settings.logs);
  read_metric_pace(config, settings);
  TUFT_TRY(read_sampling(config, settings));
  read_propagators(config, settings);
  return settings;
}

}  // namespace tuft::telemetry::internal
