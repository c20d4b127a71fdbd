#include <algorithm>
#include <string>

#include "config/sections.h"

namespace tuft::config {
namespace {

constexpr int64_t kDiskBytesMin = 16LL << 20;
constexpr int64_t kMemoryBytesMin = 8LL << 20;
constexpr int64_t kAgeMin = 60;
constexpr int64_t kAgeMax = 90LL * 24 * 3600;
constexpr size_t kOperatorsMax = 1'000;

}  // namespace

void read_store(const Node* node, TelemetryStoreConfig& store, Problems& problems) {
  MapReader reader(node, "telemetry.store", problems);
  reader.boolean("enabled", store.enabled);
  if (std::string path; reader.text("directory", path)) {
    store.directory = path;
    if (path.empty()) reader.error("directory", "must name a directory");
  }
  reader.integer("disk_bytes_max", store.disk_bytes_max, kDiskBytesMin);
  reader.integer("memory_bytes_max", store.memory_bytes_max, kMemoryBytesMin);
  reader.integer("age_max_seconds", store.age_max_seconds, kAgeMin, kAgeMax);
  reader.finish();
}

void read_intake(const Node* node, ServerConfig& config, Problems& problems) {
  MapReader reader(node, "telemetry.intake", problems);
  TelemetryIntakeConfig& intake = config.telemetry_intake;
  reader.integer("grpc_port", intake.grpc_port);
  reader.integer("http_port", intake.http_port);
  reader.finish();
  const bool takes = intake.grpc_port != 0 || intake.http_port != 0;
  const std::string_view first = intake.grpc_port != 0 ? "grpc_port" : "http_port";
  if (takes && !config.telemetry_store.enabled) {
    reader.error(first, "needs the store that keeps what comes: set telemetry.store.enabled to true, or remove it");
  }
  if (takes && intake.grpc_port == intake.http_port) {
    reader.error("http_port", "must differ from telemetry.intake.grpc_port: each protocol has a port of its own");
  }
  for (const auto& [key, port] : {std::pair{"grpc_port", intake.grpc_port}, std::pair{"http_port", intake.http_port}}) {
    if (port != 0 && port == config.port) reader.error(key, "must differ from port, where the API is served");
  }
}

void read_console(const Node* node, ServerConfig& config, Problems& problems) {
  MapReader reader(node, "console", problems);
  reader.boolean("enabled", config.console.enabled);
  const Node* const operators = reader.take("operators");
  reader.finish();
  if (operators == nullptr) return;
  constexpr std::string_view kPath = "console.operators";
  if (!operators->is_list() || operators->items.size() > kOperatorsMax) {
    return problems.error(operators->line, kPath, "must be a list of at most 1000 users such as [alice]");
  }
  std::vector<std::string>& names = config.console.operators;
  for (const Node& item : operators->items) {
    if (!item.is_scalar() || item.text.empty()) {
      problems.error(item.line, kPath, "must hold names of users, as authorized_users maps API keys to");
    } else if (std::find(names.begin(), names.end(), item.text) == names.end()) {
      names.push_back(item.text);
    }
  }
  // The users of a file are known when it has been read.
  if (!config.authorized_users_file.empty()) return;
  for (const std::string& name : unknown_operators(config.console, config.authorized_users)) {
    problems.warning(operators->line, kPath, "names " + name + ", which no key of authorized_users belongs to");
  }
}

std::vector<std::string> unknown_operators(const ConsoleConfig& console,
                                           const std::map<std::string, std::string>& users) {
  std::vector<std::string> unknown;
  for (const std::string& name : console.operators) {
    const bool known = std::any_of(users.begin(), users.end(), [&](const auto& user) { return user.second == name; });
    if (!known) unknown.push_back(name);
  }
  return unknown;
}

}  // namespace tuft::config
