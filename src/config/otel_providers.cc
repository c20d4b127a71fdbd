#include <algorithm>
#include <cctype>
#include <map>
#include <string>

#include "config/otel_sections.h"
#include "telemetry/settings/environment.h"

namespace tuft::config::otel {
namespace {

using telemetry::Compression;
using telemetry::ExemplarFilter;
using telemetry::HistogramAggregation;
using telemetry::Protocol;
using telemetry::SignalConfig;
using telemetry::TelemetryConfig;
using telemetry::Temporality;

constexpr int64_t kTimeMaxMs = 24 * 3600 * 1000;
constexpr int64_t kNoLimitMs = 3600 * 1000;
constexpr int64_t kBatchMax = 65'536;
constexpr int64_t kQueueMax = 10'000'000;
// A request is closed before it reaches this size.
constexpr int64_t kRequestBytes = 4 << 20;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
}

// Header values are usually credentials: no message shows one.
void add_header(const std::string& name, const std::string& value, int line, const std::string& path,
                SignalConfig& signal, Problems& problems) {
  problems.hide(value);
  if (name.empty() || !is_printable(value)) {
    problems.error(line, path, "must have a name and a value of printable ASCII characters");
  } else {
    signal.headers[lower(name)] = value;
  }
}

// Entries of `headers` override those of `headers_list`.
void read_headers(MapReader& reader, SignalConfig& signal) {
  Problems& problems = reader.problems();
  std::string list;
  if (reader.text("headers_list", list)) {
    int malformed = 0;
    const auto pairs = telemetry::internal::parse_pairs(list, malformed);
    for (const auto& [name, value] : pairs)
      add_header(name, value, reader.line_of("headers_list"), reader.path_of("headers_list"), signal, problems);
    if (malformed > 0) reader.error("headers_list", "must be name=value,name=value");
  }
  const Node* const headers = reader.take("headers");
  if (headers == nullptr) return;
  if (!headers->is_list()) return reader.error("headers", "must be a list of {name, value}");
  for (size_t i = 0; i < headers->items.size(); ++i) {
    const std::string path = reader.path_of("headers") + "[" + std::to_string(i) + "]";
    MapReader entry(&headers->items[i], path, problems);
    std::string name;
    std::string value;
    entry.text("name", name);
    if (entry.text("value", value)) add_header(name, value, entry.line(), path, signal, problems);
    entry.finish();
  }
}

void read_path(MapReader& reader, std::string_view key, std::optional<std::string>& out) {
  if (std::string path; reader.text(key, path)) out = path;
}

// Returns what `insecure` says.
bool read_tls(const Node* node, const std::string& path, bool grpc, SignalConfig& signal, Problems& problems) {
  MapReader reader(node, path, problems);
  read_path(reader, "ca_file", signal.tls.ca_file);
  read_path(reader, "cert_file", signal.tls.certificate_file);
  read_path(reader, "key_file", signal.tls.key_file);
  if (signal.tls.certificate_file.has_value() != signal.tls.key_file.has_value())
    reader.error(signal.tls.key_file ? "cert_file" : "key_file", "is missing: cert_file and key_file belong together");
  bool insecure = false;
  if (grpc) reader.boolean("insecure", insecure);
  reader.finish();
  return insecure;
}

// 0 means without a limit, which an export cannot have: it would keep a shutdown waiting.
Nanos shorter(int64_t one_ms, int64_t other_ms) {
  const auto limited = [](int64_t ms) { return ms == 0 ? kNoLimitMs : std::min(ms, kNoLimitMs); };
  return std::min(limited(one_ms), limited(other_ms)) * kMillisecond;
}

void read_otlp(const Choice& choice, std::string_view signal_name, int64_t timeout, SignalConfig& signal,
               MapReader& reader) {
  const bool grpc = choice.name == "otlp_grpc";
  signal.protocol = grpc ? Protocol::kGrpc : Protocol::kHttpProtobuf;
  std::string endpoint = grpc ? "http://localhost:4317" : "http://localhost:4318/v1/" + std::string(signal_name);
  reader.text("endpoint", endpoint);
  const bool insecure = read_tls(reader.take("tls"), choice.path + ".tls", grpc, signal, reader.problems());
  if (grpc && insecure && endpoint.find("://") == std::string::npos) endpoint.insert(0, "http://");
  signal.endpoint = std::move(endpoint);
  read_headers(reader, signal);
  if (const auto word = reader.one_of("compression", {"none", "gzip"}))
    signal.compression = static_cast<Compression>(*word);
  signal.export_timeout = shorter(whole(reader, "timeout", 0, kTimeMaxMs).value_or(10'000), timeout);
  const auto request = whole(reader, "max_request_size", 0);
  if (request && *request != 0 && *request < kRequestBytes)
    reader.error("max_request_size", "is not supported below " + std::to_string(kRequestBytes));
  refuse(reader, "max_response_size", "remove it");
  std::string encoding = "protobuf";
  if (!grpc && reader.text("encoding", encoding) && encoding != "protobuf")
    reader.error("encoding", "is not supported unless it is protobuf");
}

void read_file_exporter(int64_t timeout, SignalConfig& signal, MapReader& reader) {
  constexpr std::string_view kScheme = "file://";
  std::string stream = "stdout";
  reader.text("output_stream", stream);
  signal.protocol = Protocol::kFile;
  signal.export_timeout = shorter(timeout, 0);
  if (stream.starts_with(kScheme) && stream.size() > kScheme.size()) {
    signal.endpoint = stream.substr(kScheme.size());
  } else {
    reader.error("output_stream", "must be file:///path; for stdout use the exporter console");
  }
}

// The metric exporters have two keys more.
void read_metric_keys(MapReader& reader, TelemetryConfig& config) {
  if (const auto word = reader.one_of("temporality_preference", {"cumulative", "delta", "low_memory"}))
    config.temporality = static_cast<Temporality>(*word);
  if (const auto word = reader.one_of(
          "default_histogram_aggregation",
          {std::begin(telemetry::kHistogramAggregationWords), std::end(telemetry::kHistogramAggregationWords)}))
    config.histogram_aggregation = static_cast<HistogramAggregation>(*word);
}

std::optional<double> read_ratio(const Choice& choice, Problems& problems) {
  MapReader reader(choice.value, choice.path, problems);
  double ratio = 1;
  if (reader.number("ratio", ratio) && !(ratio >= 0 && ratio <= 1)) reader.error("ratio", "must be between 0 and 1");
  reader.finish();
  return ratio;
}

// Reads the sampler for a trace that begins here. Returns its name in OTEL_TRACES_SAMPLER.
std::string read_root_sampler(const Choice& choice, TelemetryConfig& config, Problems& problems) {
  if (choice.name == "always_on" || choice.name == "always_off") {
    refuse_keys(choice, problems);
    return std::string(choice.name);
  }
  if (choice.name == "trace_id_ratio_based") {
    config.sampling_ratio = read_ratio(choice, problems);
    return "traceidratio";
  }
  refuse(choice, "always_on, always_off, trace_id_ratio_based and parent_based are", problems);
  return "always_on";
}

// The decision of a parent always applies as it is.
void check_parent_sampler(MapReader& reader, std::string_view key, std::string_view supported) {
  const Node* const node = reader.take(key);
  if (node == nullptr) return;
  const auto choice = read_choice(node, reader.path_of(key), reader.problems());
  if (!choice) return;
  if (choice->name != supported)
    return refuse(*choice, "only " + std::string(supported) + " is, the default", reader.problems());
  refuse_keys(*choice, reader.problems());
}

void read_sampler(const Node* node, TelemetryConfig& config, Problems& problems) {
  config.sampler = "parentbased_always_on";
  if (node == nullptr) return;
  const auto choice = read_choice(node, "tracer_provider.sampler", problems);
  if (!choice) return;
  if (choice->name != "parent_based") {
    config.sampler = read_root_sampler(*choice, config, problems);
    return;
  }
  MapReader reader(choice->value, choice->path, problems);
  if (const Node* root = reader.take("root")) {
    if (const auto chosen = read_choice(root, choice->path + ".root", problems))
      config.sampler = "parentbased_" + read_root_sampler(*chosen, config, problems);
  }
  for (const char* side : {"remote", "local"}) {
    check_parent_sampler(reader, side == std::string_view("remote") ? "remote_parent_sampled" : "local_parent_sampled",
                         "always_on");
    check_parent_sampler(reader,
                         side == std::string_view("remote") ? "remote_parent_not_sampled" : "local_parent_not_sampled",
                         "always_off");
  }
  reader.finish();
}

void read_processors(MapReader& provider, std::string_view signal_name, int64_t delay_ms, SignalConfig& signal,
                     TelemetryConfig& config) {
  Problems& problems = provider.problems();
  const Node* const entry =
      only_entry(provider, "processors", "each signal has one; a Collector can send to several places");
  if (entry == nullptr) return;
  const auto choice = read_choice(entry, provider.path_of("processors") + "[0]", problems);
  if (!choice) return;
  if (choice->name != "batch") return refuse(*choice, "use batch", problems);
  MapReader reader(choice->value, choice->path, problems);
  delay_ms = whole(reader, "schedule_delay", 0, kTimeMaxMs).value_or(delay_ms);
  signal.batch_delay = std::max<int64_t>(delay_ms, 1) * kMillisecond;
  signal.queue_max = whole(reader, "max_queue_size", 1, kQueueMax).value_or(2048);
  signal.batch_max = whole(reader, "max_export_batch_size", 1, kBatchMax).value_or(512);
  const int64_t timeout = whole(reader, "export_timeout", 0, kTimeMaxMs).value_or(30'000);
  read_exporter(reader, signal_name, timeout, signal, config);
  reader.finish();
}

void read_periodic(const Choice& choice, TelemetryConfig& config, Problems& problems) {
  MapReader reader(choice.value, choice.path, problems);
  config.metric_interval = whole(reader, "interval", 1, kTimeMaxMs).value_or(60'000) * kMillisecond;
  const int64_t timeout = whole(reader, "timeout", 0, kTimeMaxMs).value_or(30'000);
  read_exporter(reader, "metrics", timeout, config.metrics, config);
  refuse(reader, "producers", "the metrics are those of this server");
  refuse(reader, "cardinality_limits", "each instrument has at most 256 series");
  refuse(reader, "max_export_batch_size/development", "a request has at most 4 MiB");
  reader.finish();
}

}  // namespace

void read_exporter(MapReader& parent, std::string_view lower, int64_t timeout, SignalConfig& signal,
                   TelemetryConfig& config) {
  Problems& problems = parent.problems();
  parent.require("exporter", "it says where the data goes");
  const Node* const node = parent.take("exporter");
  if (node == nullptr) return;
  const auto choice = read_choice(node, parent.path_of("exporter"), problems);
  if (!choice) return;
  MapReader reader(choice->value, choice->path, problems);
  if (choice->name == "otlp_grpc" || choice->name == "otlp_http") {
    read_otlp(*choice, lower, timeout, signal, reader);
  } else if (choice->name == "otlp_file/development") {
    read_file_exporter(timeout, signal, reader);
  } else if (choice->name == "console") {
    signal.protocol = Protocol::kConsole;
  } else {
    return refuse(*choice, "otlp_grpc, otlp_http, otlp_file/development and console are", problems);
  }
  if (lower == "metrics") read_metric_keys(reader, config);
  reader.finish();
}

void read_tracer_provider(const Node* node, TelemetryConfig& config, Problems& problems) {
  config.traces.enabled = node != nullptr;
  if (node == nullptr) return;
  MapReader reader(node, "tracer_provider", problems);
  read_processors(reader, "traces", 5000, config.traces, config);
  read_limits(reader.take("limits"), "tracer_provider.limits", problems);
  read_sampler(reader.take("sampler"), config, problems);
  if (const Node* generator = reader.take("id_generator")) {
    const auto choice = read_choice(generator, "tracer_provider.id_generator", problems);
    if (choice && choice->name != "random") refuse(*choice, "ids are random", problems);
    if (choice && choice->name == "random") refuse_keys(*choice, problems);
  }
  refuse(reader, "tracer_configurator/development", "every tracer is on");
  reader.finish();
}

void read_meter_provider(const Node* node, TelemetryConfig& config, Problems& problems) {
  config.metrics.enabled = node != nullptr;
  if (node == nullptr) return;
  MapReader reader(node, "meter_provider", problems);
  if (const Node* entry =
          only_entry(reader, "readers", "metrics are pushed to one place, and GET /metrics is always there")) {
    const auto choice = read_choice(entry, "meter_provider.readers[0]", problems);
    if (choice && choice->name == "periodic") {
      read_periodic(*choice, config, problems);
    } else if (choice) {
      refuse(*choice, "Prometheus reads GET /metrics on the server's own port without it", problems);
    }
  }
  refuse(reader, "views", "docs/telemetry.md lists the instruments, their labels and buckets");
  if (const auto word = reader.one_of(
          "exemplar_filter", {std::begin(telemetry::kExemplarFilterWords), std::end(telemetry::kExemplarFilterWords)}))
    config.exemplar_filter = static_cast<ExemplarFilter>(*word);
  refuse(reader, "meter_configurator/development", "every meter is on");
  reader.finish();
}

void read_logger_provider(const Node* node, TelemetryConfig& config, Problems& problems) {
  config.logs.enabled = node != nullptr;
  if (node == nullptr) return;
  MapReader reader(node, "logger_provider", problems);
  read_processors(reader, "logs", 1000, config.logs, config);
  read_limits(reader.take("limits"), "logger_provider.limits", problems);
  refuse(reader, "logger_configurator/development", "every logger is on");
  reader.finish();
}

}  // namespace tuft::config::otel
