#include <algorithm>
#include <cctype>
#include <cmath>
#include <string_view>

#include "config/sections.h"

namespace tuft::config {
namespace {

using telemetry::Compression;
using telemetry::ExemplarFilter;
using telemetry::HistogramAggregation;
using telemetry::Protocol;
using telemetry::SignalConfig;
using telemetry::TelemetryConfig;
using telemetry::Temporality;
using telemetry::TlsConfig;

constexpr double kDurationMax = 24 * 3600;
constexpr int64_t kBatchMax = 65'536;
constexpr int64_t kQueueMax = 10'000'000;
constexpr int64_t kTraceArchiveMax = int64_t{4} << 30;

void read_attributes(const Node* node, std::map<std::string, std::string>& attributes, Problems& problems) {
  constexpr std::string_view kPath = "telemetry.resource_attributes";
  if (node == nullptr) return;
  if (!node->is_map()) return problems.error(node->line, kPath, "must be a mapping of text to text");
  for (const Node::Entry& entry : node->entries) {
    const std::string path = std::string(kPath) + "." + entry.key;
    if (entry.key.empty()) {
      problems.error(entry.line, kPath, "has an empty name");
    } else if (entry.value.is_scalar()) {
      attributes[entry.key] = entry.value.text;
    } else {
      problems.error(entry.line, path, "must be a text");
    }
  }
}

// Returns true for a token of RFC 9110.
bool is_header_name(std::string_view name) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !name.empty() && std::all_of(name.begin(), name.end(), [&](unsigned char c) {
    return std::isalnum(c) || kMarks.find(static_cast<char>(c)) != std::string_view::npos;
  });
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
}

// Header values are usually credentials: no message shows a value, or a name that may be a misplaced value.
void read_headers(const Node* node, std::map<std::string, std::string>& headers, Problems& problems) {
  constexpr std::string_view kPath = "telemetry.headers";
  if (node == nullptr) return;
  if (!node->is_map()) return problems.error(node->line, kPath, "must be a mapping of header names to values");
  for (const Node::Entry& entry : node->entries) problems.hide(entry.value.text);
  for (size_t i = 0; i < node->entries.size(); ++i) {
    const Node::Entry& entry = node->entries[i];
    const std::string path = std::string(kPath) + " (entry " + std::to_string(i + 1) + ")";
    if (!is_header_name(entry.key)) {
      problems.error(entry.line, path, "is no name of an HTTP header");
    } else if (!entry.value.is_scalar() || !is_printable(entry.value.text)) {
      problems.error(entry.line, path, "the value must be a text of printable ASCII characters");
    } else {
      std::string name = entry.key;
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      headers[name] = entry.value.text;
    }
  }
}

void read_optional(MapReader& reader, std::string_view key, std::optional<std::string>& out) {
  // An empty value counts as absent, because files use ${oc.env:NAME,} to let the environment decide.
  if (std::string text; reader.text(key, text) && !text.empty()) out = text;
}

void read_optional(MapReader& reader, std::string_view key, std::optional<bool>& out) {
  bool value = false;
  if (reader.boolean(key, value)) out = value;
}

void read_optional(MapReader& reader, std::string_view key, std::optional<int64_t>& out, int64_t at_most) {
  int64_t value = 0;
  if (reader.integer(key, value, 1, at_most)) out = value;
}

// Reads a time in seconds, at least one millisecond. 0 is accepted only with `zero_allowed`.
void read_duration(MapReader& reader, std::string_view key, std::optional<Nanos>& out, bool zero_allowed = false) {
  double seconds = 0;
  if (!reader.number(key, seconds)) return;
  if (zero_allowed ? !(seconds >= 0) : !(seconds >= 0.001))
    return reader.error(key, zero_allowed ? "must be a time in seconds, 0 for never" : "must be at least 0.001 s");
  if (seconds > kDurationMax) return reader.error(key, "must be at most a day (86400 s)");
  out = static_cast<Nanos>(std::llround(seconds * 1e9));
}

template <size_t kWords>
std::optional<size_t> one_of(MapReader& reader, std::string_view key, const std::string_view (&words)[kWords]) {
  return reader.one_of(key, {std::begin(words), std::end(words)});
}

void read_protocol(MapReader& reader, std::optional<Protocol>& out) {
  if (const auto word = one_of(reader, "protocol", telemetry::kProtocolWords)) out = static_cast<Protocol>(*word);
}

void read_signal_keys(MapReader& reader, SignalConfig& signal) {
  read_optional(reader, "enabled", signal.enabled);
  read_protocol(reader, signal.protocol);
  read_optional(reader, "endpoint", signal.endpoint);
}

void read_signal(const Node* node, std::string_view name, SignalConfig& signal, Problems& problems) {
  MapReader reader(node, "telemetry." + std::string(name), problems);
  read_signal_keys(reader, signal);
  reader.finish();
}

void read_logs(const Node* node, TelemetryConfig& config, Problems& problems) {
  MapReader reader(node, "telemetry.logs", problems);
  read_signal_keys(reader, config.logs);
  if (const auto word = reader.one_of("level", {"debug", "info", "warning", "error"}))
    config.log_level = static_cast<telemetry::Severity>(*word);
  reader.finish();
}

void read_tls(const Node* node, TlsConfig& tls, Problems& problems) {
  MapReader reader(node, "telemetry.tls", problems);
  read_optional(reader, "ca_file", tls.ca_file);
  read_optional(reader, "certificate_file", tls.certificate_file);
  read_optional(reader, "key_file", tls.key_file);
  if (tls.certificate_file.has_value() != tls.key_file.has_value()) {
    const std::string_view missing = tls.key_file ? "certificate_file" : "key_file";
    reader.error(missing, "is missing: certificate_file and key_file must be set together");
  }
  reader.finish();
}

void read_export(MapReader& reader, TelemetryConfig& config) {
  read_optional(reader, "otlp_endpoint", config.otlp_endpoint);
  read_protocol(reader, config.protocol);
  read_headers(reader.take("headers"), config.headers, reader.problems());
  if (const auto word = reader.one_of("compression", {"none", "gzip"}))
    config.compression = static_cast<Compression>(*word);
  read_tls(reader.take("tls"), config.tls, reader.problems());
  read_optional(reader, "file_path", config.file_path);
  read_duration(reader, "export_timeout_seconds", config.export_timeout);
  read_signal(reader.take("traces"), "traces", config.traces, reader.problems());
  read_signal(reader.take("metrics"), "metrics", config.metrics, reader.problems());
  read_logs(reader.take("logs"), config, reader.problems());
  if (config.file_path) return;
  for (const SignalConfig* signal : {&config.traces, &config.metrics, &config.logs}) {
    if (signal->protocol.value_or(config.protocol.value_or(Protocol::kGrpc)) == Protocol::kFile && !signal->endpoint)
      return reader.error("file_path", "is missing: protocol file needs the path of a file to write");
  }
}

void read_sampling(MapReader& reader, TelemetryConfig& config) {
  static const std::vector<std::string_view> samplers = {"always_on",
                                                         "always_off",
                                                         "traceidratio",
                                                         "parentbased_always_on",
                                                         "parentbased_always_off",
                                                         "parentbased_traceidratio"};
  if (const auto word = reader.one_of("sampler", samplers)) config.sampler = samplers[*word];
  double ratio = 0;
  if (reader.number("sampling_ratio", ratio)) {
    if (!(ratio >= 0 && ratio <= 1)) {
      reader.error("sampling_ratio", "must be between 0 and 1");
    } else {
      config.sampling_ratio = ratio;
    }
    if (config.sampler && !config.sampler->ends_with("traceidratio"))
      reader.warning("sampling_ratio", "has no effect with sampler " + *config.sampler);
  }
  read_optional(reader, "keep_errors", config.keep_errors);
  read_duration(reader, "keep_slower_than_seconds", config.keep_slower_than, true);
}

void read_pace(MapReader& reader, TelemetryConfig& config) {
  read_duration(reader, "metric_interval_seconds", config.metric_interval);
  if (const auto word = reader.one_of("temporality", {"cumulative", "delta", "lowmemory"}))
    config.temporality = static_cast<Temporality>(*word);
  if (const auto word = one_of(reader, "exemplar_filter", telemetry::kExemplarFilterWords))
    config.exemplar_filter = static_cast<ExemplarFilter>(*word);
  if (const auto word = one_of(reader, "histogram_aggregation", telemetry::kHistogramAggregationWords))
    config.histogram_aggregation = static_cast<HistogramAggregation>(*word);
  read_duration(reader, "batch_delay_seconds", config.batch_delay);
  read_optional(reader, "batch_max", config.batch_max, kBatchMax);
  read_optional(reader, "queue_max", config.queue_max, kQueueMax);
  if (config.batch_max && config.queue_max && *config.batch_max > *config.queue_max)
    reader.error("batch_max", "must not be above queue_max, because batches are taken from the queue");
  reader.integer("trace_archive_bytes", config.trace_archive_bytes, 0, kTraceArchiveMax);
  read_duration(reader, "shutdown_budget_seconds", config.shutdown_budget);
}

void read_metrics_endpoint(MapReader& reader, TelemetryConfig& config) {
  reader.boolean("metrics_endpoint", config.metrics_endpoint);
  if (reader.text("metrics_token", config.metrics_token)) {
    reader.problems().hide(config.metrics_token);
    if (!is_printable(config.metrics_token) || config.metrics_token.find(' ') != std::string::npos)
      reader.error("metrics_token", "must be a text of printable ASCII characters without blanks");
  }
  reader.boolean("tenant_label", config.tenant_label);
}

}  // namespace

bool read_telemetry(const Node* node, ServerConfig& server, Problems& problems) {
  TelemetryConfig& config = server.telemetry;
  MapReader reader(node, "telemetry", problems);
  const bool said = reader.boolean("enabled", config.enabled);
  if (std::string name; reader.text("service_name", name)) {
    if (name.empty()) reader.error("service_name", "must not be empty");
    config.service_name = std::move(name);
  }
  read_attributes(reader.take("resource_attributes"), config.resource_attributes, problems);
  read_export(reader, config);
  read_sampling(reader, config);
  read_pace(reader, config);
  read_optional(reader, "propagate_baggage", config.propagate_baggage);
  read_metrics_endpoint(reader, config);
  read_store(reader.take("store"), server.telemetry_store, problems);
  read_intake(reader.take("intake"), server, problems);
  config.outbox = server.telemetry_store.enabled;
  reader.finish();
  return said;
}

void enable_tracing(TelemetryConfig& config) {
  config.traces.enabled = true;
  if (config.enabled) return;
  config.enabled = true;
  // The user asked for neither of these two, and the address may be that of a trace store.
  if (!config.metrics.enabled) config.metrics.enabled = false;
  if (!config.logs.enabled) config.logs.enabled = false;
}

}  // namespace tuft::config
