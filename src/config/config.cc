#include "config/config.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <system_error>

#include "base/file.h"
#include "base/secret_file.h"
#include "config/otel_file.h"
#include "config/reader.h"
#include "config/sections.h"
#include "config/wiped_memory.h"

namespace tuft::config {
namespace {

constexpr size_t kFileSizeMax = 1 << 20;

// A setting of the command line or the environment, with its name for messages.
struct Outside {
  std::string value;
  std::string source;  // "--port", "TUFT_PORT"
};

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<Outside> outside(const std::optional<std::string>& flag, const char* flag_name, const char* variable) {
  if (flag) return Outside{*flag, flag_name};
  if (auto value = environment(variable)) return Outside{std::move(*value), variable};
  return std::nullopt;
}

std::optional<std::string> canonical_level(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  if (text == "debug" || text == "info" || text == "warning" || text == "error") return text;
  // Further log levels of uvicorn, which TuFT accepts.
  if (text == "trace") return "debug";
  if (text == "warn") return "warning";
  if (text == "critical") return "error";
  return std::nullopt;
}

bool all_of(std::string_view text, std::string_view further) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](unsigned char c) {
    return std::isalnum(c) != 0 || further.find(static_cast<char>(c)) != std::string_view::npos;
  });
}

// Accepts a scheme, a host, and perhaps a port and a path.
bool is_public_url(std::string_view url) {
  constexpr std::string_view kSchemes[] = {"http://", "https://"};
  const auto* const scheme = std::find_if(std::begin(kSchemes), std::end(kSchemes),
                                          [&](std::string_view known) { return url.starts_with(known); });
  if (scheme == std::end(kSchemes)) return false;
  url.remove_prefix(scheme->size());
  const size_t slash = std::min(url.find('/'), url.size());
  const std::string_view path = url.substr(slash);
  std::string_view host = url.substr(0, slash);
  if (const size_t colon = host.rfind(':'); colon != std::string_view::npos && !host.ends_with(']')) {
    const auto port = parse_whole_number(host.substr(colon + 1));
    if (!port || *port < 1 || *port > 65535) return false;
    host = host.substr(0, colon);
  }
  const bool in_brackets = host.size() > 2 && host.starts_with('[') && host.ends_with(']');
  const bool is_host = in_brackets ? all_of(host.substr(1, host.size() - 2), ":.") : all_of(host, ".-_");
  return is_host && (path.empty() || all_of(path, "/._~-"));
}

constexpr std::string_view kLevelRule = "must be debug, info, warning or error";
constexpr std::string_view kFormatRule = "must be text or json";

void read_server_keys(MapReader& reader, ServerConfig& config) {
  reader.text("host", config.host);
  if (config.host.empty()) reader.error("host", "must be an address such as 127.0.0.1");
  reader.integer("port", config.port);
  if (reader.text("public_url", config.public_url)) {
    while (config.public_url.ends_with('/')) config.public_url.pop_back();
    if (!is_public_url(config.public_url)) {
      reader.error("public_url",
                   "must be the address that clients use, such as https://tuft.example.com or "
                   "https://example.com/tuft, without user, query and escapes");
      config.public_url.clear();
    }
  }
  if (std::string level; reader.text("log_level", level)) {
    if (const auto known = canonical_level(level)) {
      config.log_level = *known;
    } else {
      reader.error("log_level", kLevelRule);
    }
  }
  if (const auto format = reader.one_of("log_format", {"text", "json"}))
    config.log_format = *format == 0 ? "text" : "json";
}

void read_keys_without_effect(MapReader& reader) {
  reader.take("toy_backend_seed");
  if (reader.take("worker_venv_path") != nullptr) {
    reader.warning("worker_venv_path", "has no effect: workers run the program tuft-worker beside tuft");
  }
}

Status apply(ServerConfig& config, const Overrides& overrides) {
  const auto wrong = [](const Outside& setting, std::string_view rule) {
    return invalid_argument(setting.source + " " + std::string(rule), "config");
  };
  if (const auto host = outside(overrides.host, "--host", "TUFT_HOST")) config.host = host->value;
  if (const auto port = outside(overrides.port, "--port", "TUFT_PORT")) {
    const auto number = parse_whole_number(port->value);
    if (!number || *number < 0 || *number > 65535) return wrong(*port, "must be a port, 0 to 65535");
    config.port = static_cast<uint16_t>(*number);
  }
  if (const auto level = outside(overrides.log_level, "--log-level", "TUFT_LOG_LEVEL")) {
    const auto known = canonical_level(level->value);
    if (!known) return wrong(*level, kLevelRule);
    config.log_level = *known;
  }
  if (const auto format = outside(overrides.log_format, "--log-format", "TUFT_LOG_FORMAT")) {
    if (format->value != "text" && format->value != "json") return wrong(*format, kFormatRule);
    config.log_format = format->value;
  }
  if (const auto path = outside(overrides.checkpoint_dir, "--checkpoint-dir", "TUFT_CHECKPOINT_DIR")) {
    config.checkpoint_dir = full_path(path->value);
  }
  if (overrides.trace_enable) enable_tracing(config.telemetry);
  if (overrides.otlp_traces_endpoint) config.telemetry.traces.endpoint = overrides.otlp_traces_endpoint;
  return {};
}

Result<std::filesystem::path> find_file(const Overrides& overrides) {
  if (const auto named = outside(overrides.config_path, "--config", "TUFT_CONFIG")) return expand_user(named->value);
  const std::filesystem::path usual = home_directory() / "configs" / "tuft_config.yaml";
  std::error_code ignored;
  if (std::filesystem::exists(usual, ignored)) return usual;
  return not_found(
      "no configuration: there is no " + usual.string() + ", and neither --config nor TUFT_CONFIG names a file",
      "no_config");
}

Result<std::string> read_config_file(const std::filesystem::path& path) {
  Result<std::string> text = read_file(path, kFileSizeMax);
  if (!text.ok()) return Error{text.error().code, "configuration: " + text.error().message, "config"};
  return text;
}

}  // namespace

std::filesystem::path home_directory() {
  return full_path(environment("TUFT_HOME").value_or("~/.tuft"));
}

Result<Loaded> parse_config(std::string_view yaml, std::string_view origin) {
  TUFT_ASSIGN(Node root, parse_document(yaml, origin));
  if (!root.is_map()) {
    return invalid_argument(std::string(origin) + ":" + std::to_string(root.line) +
                                ": the file must be a mapping with the key supported_models",
                            "config");
  }
  TUFT_TRY(interpolate(root, origin));

  Loaded loaded;
  ServerConfig& config = loaded.config;
  Problems problems(origin);
  MapReader reader(&root, "", problems);
  // Read first, so that later messages cannot show a key.
  const Node* const users = reader.take("authorized_users");
  config.authorized_users = read_users(users, "authorized_users", problems);
  read_server_keys(reader, config);
  config.home = home_directory();
  config.checkpoint_dir = config.home / "checkpoints";
  if (std::string path; reader.text("checkpoint_dir", path)) config.checkpoint_dir = full_path(path);
  config.supported_models = read_models(reader.take("supported_models"), reader.line(), problems);
  reader.text("model_owner", config.model_owner);
  read_keys_without_effect(reader);
  config.telemetry_store.directory = config.home / "telemetry";
  const bool said = read_telemetry(reader.take("telemetry"), config, problems);
  // FastDeploy's switch applies if the file does not decide.
  if (!said && parse_boolean(environment("TRACES_ENABLE").value_or("")).value_or(false))
    enable_tracing(config.telemetry);
  reader.file("authorized_users_file", config.authorized_users_file);
  if (config.authorized_users.empty() && config.authorized_users_file.empty()) {
    problems.warning(users == nullptr ? 1 : users->line, "authorized_users",
                     "is empty, so every request will be refused; add \"tml-<secret>: <user>\" lines");
  }
  read_tls(reader.take("tls"), config.tls, problems);
  for (std::filesystem::path* path : {&config.tls.certificate, &config.tls.private_key}) {
    if (!path->empty()) *path = full_path(path->string());
  }
  read_join(reader.take("join"), config, problems);
  read_bucket(reader.take("bucket"), config.bucket, problems);
  config.telemetry_store.directory = full_path(config.telemetry_store.directory.string());
  read_console(reader.take("console"), config, problems);
  read_limits(reader.take("limits"), config.limits, problems);
  config.persistence.file_path = config.home / "persistence.db";
  read_persistence(reader.take("persistence"), config.persistence, problems);
  config.persistence.file_path = full_path(config.persistence.file_path.string());
  reader.finish();

  if (problems.failed()) return problems.take_error();
  loaded.warnings = problems.take_warnings();
  if (const auto path = environment("OTEL_CONFIG_FILE"))
    TUFT_TRY(use_otel_file(*path, root.find("telemetry"), origin, config.telemetry, loaded.warnings));
  return loaded;
}

Result<UsersFile> read_users_file(const std::filesystem::path& path) {
  constexpr std::string_view kKey = "authorized_users_file";
  const WipesFreedMemory keys_are_secret;
  const Result<std::string> text = read_file(path, kFileSizeMax);
  if (!text.ok()) return invalid_argument(std::string(kKey) + ": " + text.error().message, "config");
  if (!text->ends_with('\n')) {
    return invalid_argument(std::string(kKey) + ": " + path.string() +
                                " does not end with a newline, so it may be half-written; add a newline at its end",
                            "config");
  }
  TUFT_ASSIGN(const Node root, parse_document(*text, path.string()));
  Problems problems(path.string());
  UsersFile file;
  file.users = read_users(&root, kKey, problems);
  if (is_open_to_others(path)) problems.warning(1, kKey, kOpenToOthers);
  if (problems.failed()) return problems.take_error();
  file.warnings = problems.take_warnings();
  return file;
}

Result<Loaded> load_config(const Overrides& overrides) {
  const WipesFreedMemory keys_are_secret;
  TUFT_ASSIGN(const std::filesystem::path path, find_file(overrides));
  TUFT_ASSIGN(const std::string text, read_config_file(path));
  TUFT_ASSIGN(Loaded loaded, parse_config(text, path.string()));
  TUFT_TRY(apply(loaded.config, overrides));
  std::error_code failure;
  std::filesystem::create_directories(loaded.config.checkpoint_dir, failure);
  if (failure) {
    return invalid_argument(
        "checkpoint_dir: cannot make " + loaded.config.checkpoint_dir.string() + ": " + failure.message(), "config");
  }
  return loaded;
}

}  // namespace tuft::config
