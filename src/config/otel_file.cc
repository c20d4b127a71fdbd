#include "config/otel_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

#include "base/file.h"
#include "config/otel_sections.h"
#include "config/reader.h"
#include "telemetry/settings/environment.h"

namespace tuft::config {
namespace {

using telemetry::TelemetryConfig;

constexpr size_t kOtelFileSizeMax = 1 << 20;

bool has_value(const Node& node) {
  if (node.is_scalar()) return true;
  return std::any_of(node.entries.begin(), node.entries.end(),
                     [](const Node::Entry& entry) { return has_value(entry.value); }) ||
         std::any_of(node.items.begin(), node.items.end(), [](const Node& item) { return has_value(item); });
}

// The major version must be ours. A newer minor version adds keys, which are reported where they are.
void read_format(MapReader& root) {
  std::string format;
  root.require("file_format", "write file_format: \"1.1\"");
  if (!root.text("file_format", format)) return;
  if (format == "1.0" || format == "1.1") return;
  const std::string minor = format.starts_with("1.") ? format.substr(2) : "";
  if (minor.empty() || minor.find_first_not_of("0123456789") != std::string::npos)
    return root.error("file_format", "must be \"1.0\" or \"1.1\"");
  root.warning("file_format", "is newer than 1.1; keys that it adds are not known here");
}

// Attributes of the resource are text.
void read_attribute(const Node& item, const std::string& path, std::map<std::string, std::string>& out,
                    Problems& problems) {
  MapReader reader(&item, path, problems);
  std::string name;
  std::string value;
  std::string type = "string";
  reader.require("name", "it names the attribute");
  reader.text("name", name);
  reader.text("type", type);
  if (type != "string") reader.error("type", "is not supported; attributes of the resource are of the type string");
  // A null value is no attribute.
  if (const bool said = reader.text("value", value); said && !name.empty()) out[name] = value;
  reader.finish();
}

void read_resource(const Node* node, TelemetryConfig& config, Problems& problems) {
  MapReader reader(node, "resource", problems);
  std::string list;
  if (reader.text("attributes_list", list)) {
    int malformed = 0;
    config.resource_attributes = telemetry::internal::parse_pairs(list, malformed);
    if (malformed > 0) reader.error("attributes_list", "must be name=value,name=value");
  }
  if (const Node* attributes = reader.take("attributes")) {
    if (!attributes->is_list()) reader.error("attributes", "must be a list of {name, value}");
    for (size_t i = 0; i < attributes->items.size(); ++i)
      read_attribute(attributes->items[i], "resource.attributes[" + std::to_string(i) + "]", config.resource_attributes,
                     problems);
  }
  if (const Node* detection = reader.take("detection/development")) {
    MapReader parts(detection, "resource.detection/development", problems);
    otel::refuse(parts, "attributes", "every attribute that is detected is kept");
    if (const Node* detectors = parts.take("detectors")) {
      for (size_t i = 0; i < detectors->items.size(); ++i) {
        const std::string path = "resource.detection/development.detectors[" + std::to_string(i) + "]";
        const auto choice = otel::read_choice(&detectors->items[i], path, problems);
        // service.instance.id, host.name and process.pid are always there.
        if (!choice) continue;
        if (choice->name == "service" || choice->name == "host" || choice->name == "process") {
          otel::refuse_keys(*choice, problems);
        } else {
          otel::refuse(*choice, "service, host and process are detected; remove it", problems);
        }
      }
    }
    parts.finish();
  }
  otel::refuse(reader, "schema_url", "remove it");
  reader.finish();
}

void take_propagator(std::string_view name, int line, const std::string& path, TelemetryConfig& config,
                     Problems& problems) {
  if (name == "tracecontext") {
    config.propagate_trace_context = true;
  } else if (name == "baggage") {
    config.propagate_baggage = true;
  } else if (name != "none") {
    problems.error(line, path, "is not supported; tracecontext and baggage are");
  }
}

void read_propagator(const Node* node, TelemetryConfig& config, Problems& problems) {
  config.propagate_trace_context = false;
  config.propagate_baggage = false;
  MapReader reader(node, "propagator", problems);
  if (const Node* composite = reader.take("composite")) {
    if (!composite->is_list()) reader.error("composite", "must be a list");
    for (size_t i = 0; i < composite->items.size(); ++i) {
      const std::string path = "propagator.composite[" + std::to_string(i) + "]";
      if (const auto choice = otel::read_choice(&composite->items[i], path, problems)) {
        take_propagator(choice->name, choice->line, choice->path, config, problems);
        otel::refuse_keys(*choice, problems);
      }
    }
  }
  std::string list;
  reader.text("composite_list", list);
  for (std::string_view rest = list; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    std::string name(item);
    std::erase_if(name, [](unsigned char c) { return std::isspace(c); });
    if (!name.empty())
      take_propagator(name, reader.line_of("composite_list"), "propagator.composite_list", config, problems);
  }
  reader.finish();
}

// OpenTelemetry divides each level in four: warn, warn2, warn3, warn4.
void read_log_level(MapReader& root, TelemetryConfig& config) {
  static constexpr std::array<std::string_view, 6> kLevels = {"trace", "debug", "info", "warn", "error", "fatal"};
  std::string level = "info";
  root.text("log_level", level);
  std::string word = level;
  if (!word.empty() && word.back() >= '2' && word.back() <= '4') word.pop_back();
  if (std::find(kLevels.begin(), kLevels.end(), word) == kLevels.end())
    return root.error("log_level", "must be trace, debug, info, warn, error or fatal");
  config.own_log_level = word;
}

// Unknown keys at the top level are allowed by the schema; files keep anchors there.
void warn_unknown(const Node& root, Problems& problems) {
  static constexpr std::array<std::string_view, 11> kKnown = {
      "file_format",    "disabled",   "log_level",       "attribute_limits", "logger_provider",
      "meter_provider", "propagator", "tracer_provider", "resource",         "instrumentation/development",
      "distribution"};
  for (const Node::Entry& entry : root.entries) {
    if (std::find(kKnown.begin(), kKnown.end(), entry.key) == kKnown.end())
      problems.warning(entry.line, entry.key, "has no effect: it is no key of OpenTelemetry's schema");
  }
}

// The keys of the section that OpenTelemetry's file has no counterpart for.
bool stays(std::string_view key) {
  static constexpr std::array<std::string_view, 10> kStay = {"enabled",
                                                             "keep_errors",
                                                             "keep_slower_than_seconds",
                                                             "trace_archive_bytes",
                                                             "tenant_label",
                                                             "metrics_endpoint",
                                                             "metrics_token",
                                                             "shutdown_budget_seconds",
                                                             "store",
                                                             "intake"};
  return std::find(kStay.begin(), kStay.end(), key) != kStay.end();
}

}  // namespace

namespace otel {

std::optional<Choice> read_choice(const Node* node, const std::string& path, Problems& problems) {
  if (node == nullptr || !node->is_map() || node->entries.size() != 1) {
    problems.error(node == nullptr ? 1 : node->line, path, "must be a mapping with one key, which names what to use");
    return std::nullopt;
  }
  const Node::Entry& entry = node->entries.front();
  return Choice{entry.key, &entry.value, path + "." + entry.key, entry.line};
}

const Node* only_entry(MapReader& reader, std::string_view key, std::string_view cure) {
  const Node* const list = reader.take(key);
  if (list == nullptr || !list->is_list() || list->items.empty()) {
    reader.error(key, "must be a list with one entry");
    return nullptr;
  }
  for (size_t i = 1; i < list->items.size(); ++i) {
    reader.problems().error(list->items[i].line, reader.path_of(key) + "[" + std::to_string(i) + "]",
                            "is not supported; " + std::string(cure));
  }
  return &list->items.front();
}

void refuse(MapReader& reader, std::string_view key, std::string_view cure) {
  const Node* const node = reader.take(key);
  if (node != nullptr && has_value(*node)) reader.error(key, "is not supported; " + std::string(cure));
}

void refuse(const Choice& choice, std::string_view cure, Problems& problems) {
  problems.error(choice.line, choice.path, "is not supported; " + std::string(cure));
}

void refuse_keys(const Choice& choice, Problems& problems) {
  if (choice.value != nullptr && has_value(*choice.value)) {
    problems.error(choice.line, choice.path, "has no keys; remove what stands below it");
  }
}

std::optional<int64_t> whole(MapReader& reader, std::string_view key, int64_t at_least, int64_t at_most) {
  const Node* const node = reader.take(key);
  int64_t value = 0;
  if (node != nullptr && node->is_scalar() && node->text.starts_with("0x")) {
    const char* const end = node->text.data() + node->text.size();
    const auto parsed = std::from_chars(node->text.data() + 2, end, value, 16);
    if (parsed.ec == std::errc() && parsed.ptr == end && value >= at_least && value <= at_most) return value;
  }
  if (reader.integer(key, value, at_least, at_most)) return value;
  return std::nullopt;
}

void read_limits(const Node* node, const std::string& path, Problems& problems) {
  struct Limit {
    std::string_view key;
    int64_t ours;
  };
  // telemetry/record/recorder.h; a test compares them.
  static constexpr std::array<Limit, 7> kLimits = {{{"attribute_value_length_limit", 512},
                                                    {"attribute_value_depth_limit", 1},
                                                    {"attribute_count_limit", 32},
                                                    {"event_count_limit", 8},
                                                    {"link_count_limit", 32},
                                                    {"event_attribute_count_limit", 16},
                                                    {"link_attribute_count_limit", 0}}};
  const bool of_spans = path == "tracer_provider.limits";
  MapReader reader(node, path, problems);
  for (size_t i = 0; i < (of_spans ? kLimits.size() : 3); ++i) {
    const auto& [key, ours] = kLimits[i];
    const auto value = whole(reader, key, 0);
    if (value && *value < ours)
      reader.error(key, "is not supported below " + std::to_string(ours) + ", the limit that records have");
  }
  reader.finish();
}

}  // namespace otel

Result<OtelFile> parse_otel_file(std::string_view yaml, std::string_view origin) {
  TUFT_ASSIGN(Node root, parse_document(yaml, origin));
  TUFT_TRY(substitute_environment(root, origin));
  Problems problems(origin);
  MapReader reader(&root, "", problems);
  OtelFile file;
  TelemetryConfig& config = file.config;
  config.environment_ignored = true;
  read_format(reader);
  bool disabled = false;
  reader.boolean("disabled", disabled);
  config.enabled = !disabled;
  config.outbox = !disabled;
  read_log_level(reader, config);
  otel::read_limits(reader.take("attribute_limits"), "attribute_limits", problems);
  read_resource(reader.take("resource"), config, problems);
  read_propagator(reader.take("propagator"), config, problems);
  otel::read_tracer_provider(reader.take("tracer_provider"), config, problems);
  otel::read_meter_provider(reader.take("meter_provider"), config, problems);
  otel::read_logger_provider(reader.take("logger_provider"), config, problems);
  otel::refuse(reader, "instrumentation/development", "what is recorded is fixed; remove it");
  if (root.is_map()) warn_unknown(root, problems);
  if (problems.failed()) return problems.take_error();
  file.warnings = problems.take_warnings();
  return file;
}

Status use_otel_file(const std::string& path, const Node* section, std::string_view section_origin,
                     TelemetryConfig& config, std::vector<std::string>& warnings) {
  const Result<std::string> text = read_file(path, kOtelFileSizeMax);
  if (!text.ok()) return invalid_argument("OTEL_CONFIG_FILE: " + text.error().message, "config");
  TUFT_ASSIGN(OtelFile file, parse_otel_file(*text, path));
  Problems problems(section_origin);
  bool switched_off = false;
  if (section != nullptr && section->is_map()) {
    const Node* const enabled = section->find("enabled");
    switched_off = enabled != nullptr && enabled->is_scalar() && !config.enabled;
    const bool names_service = file.config.resource_attributes.contains("service.name");
    for (const Node::Entry& entry : section->entries) {
      if (!stays(entry.key) && (entry.key != "service_name" || names_service))
        problems.warning(entry.line, "telemetry." + entry.key, "has no effect: OTEL_CONFIG_FILE names " + path);
    }
  }
  if (switched_off) file.config.enabled = false;
  file.config.outbox = file.config.outbox && config.outbox;
  file.config.service_name = config.service_name;
  file.config.keep_errors = config.keep_errors;
  file.config.keep_slower_than = config.keep_slower_than;
  file.config.trace_archive_bytes = config.trace_archive_bytes;
  file.config.shutdown_budget = config.shutdown_budget;
  file.config.metrics_endpoint = config.metrics_endpoint;
  file.config.metrics_token = config.metrics_token;
  file.config.tenant_label = config.tenant_label;
  config = std::move(file.config);
  warnings.insert(warnings.end(), file.warnings.begin(), file.warnings.end());
  for (std::string& warning : problems.take_warnings()) warnings.push_back(std::move(warning));
  return {};
}

}  // namespace tuft::config
