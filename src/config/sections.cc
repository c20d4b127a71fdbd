#include "config/sections.h"

#include <algorithm>

namespace tuft::config {
namespace {

constexpr size_t kUserNameMax = 200;
constexpr size_t kNamespaceBytesMax = 200;
constexpr int64_t kFutureTtlMax = 10LL * 365 * 24 * 3600;

bool is_user_name(std::string_view name) {
  return name.size() <= kUserNameMax &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return c >= 0x20 && c != 0x7f; });
}

bool sdk_accepts(std::string_view key) {
  return key.starts_with("tml-") || key.starts_with("eyJ");
}

}  // namespace

void read_authorized_users(const Node* node, ServerConfig& config, Problems& problems) {
  constexpr std::string_view kPath = "authorized_users";
  if (node != nullptr && !node->is_map()) {
    return problems.error(node->line, kPath, "must be a mapping of API keys to users (\"tml-...: alice\" lines)");
  }
  if (node != nullptr) {
    // First all of them, so that no message about one entry shows another.
    for (const Node::Entry& entry : node->entries) problems.hide(entry.key);
    for (size_t i = 0; i < node->entries.size(); ++i) {
      const Node::Entry& entry = node->entries[i];
      const std::string path = std::string(kPath) + " (entry " + std::to_string(i + 1) + ")";
      if (entry.key.empty()) {
        problems.error(entry.line, path, "has an empty API key");
      } else if (entry.value.is_map() || entry.value.is_list()) {
        problems.error(entry.line, path, "must be the name of a user");
      } else if (entry.value.text.empty()) {
        problems.warning(entry.line, path, "names no user, so the key is refused");
      } else if (!is_user_name(entry.value.text)) {
        problems.error(entry.line, path, "the user must be a text of at most 200 bytes without control characters");
      } else {
        if (!sdk_accepts(entry.key)) {
          problems.warning(entry.line, path, "the Tinker SDK refuses API keys that do not start with \"tml-\"");
        }
        config.authorized_users[entry.key] = entry.value.text;
      }
    }
  }
  if (config.authorized_users.empty()) {
    problems.warning(node == nullptr ? 1 : node->line, kPath,
                     "is empty, so every request will be refused; "
                     "add \"tml-<secret>: <user>\" lines");
  }
}

void read_limits(const Node* node, Limits& limits, Problems& problems) {
  MapReader reader(node, "limits", problems);
  reader.integer("request_body_bytes_max", limits.request_body_bytes_max, 1024);
  reader.integer("futures_per_user_max", limits.futures_per_user_max, 1);
  reader.integer("sessions_per_user_max", limits.sessions_per_user_max, 1);
  reader.integer("runs_per_user_max", limits.runs_per_user_max, 1);
  reader.integer("samplers_per_user_max", limits.samplers_per_user_max, 1);
  reader.integer("reorder_window", limits.reorder_window, 1);
  reader.integer("gap_timeout_seconds", limits.gap_timeout_seconds, 1);
  // The SDK polls again after up to 30 s of back-off and a 45 s timeout; less would lose results.
  reader.integer("future_retention_seconds", limits.future_retention_seconds, 120);
  reader.integer("future_bytes_max", limits.future_bytes_max, 1 << 20);
  reader.integer("connections_max", limits.connections_max, 1);
  reader.finish();
}

namespace {

// Names as TuFT's ConfigCheckField has them.
const std::vector<std::string_view> kCheckFields = {"SUPPORTED_MODELS", "CHECKPOINT_DIR",   "MODEL_OWNER",
                                                    "TOY_BACKEND_SEED", "AUTHORIZED_USERS", "TELEMETRY"};

void read_check_fields(const Node* node, std::vector<std::string>& fields, Problems& problems) {
  constexpr std::string_view kPath = "persistence.check_fields";
  if (node == nullptr) return;
  if (!node->is_list()) return problems.error(node->line, kPath, "must be a list of names such as [SUPPORTED_MODELS]");
  for (const Node& item : node->items) {
    if (!item.is_scalar() || std::find(kCheckFields.begin(), kCheckFields.end(), item.text) == kCheckFields.end()) {
      problems.error(item.line, kPath,
                     "holds a name that is none of SUPPORTED_MODELS, CHECKPOINT_DIR, MODEL_OWNER, TOY_BACKEND_SEED, "
                     "AUTHORIZED_USERS, TELEMETRY");
    } else if (std::find(fields.begin(), fields.end(), item.text) == fields.end()) {
      fields.push_back(item.text);
    }
  }
}

}  // namespace

void read_persistence(const Node* node, PersistenceConfig& persistence, Problems& problems) {
  MapReader reader(node, "persistence", problems);
  // First, so that no message shows it: it may hold a password.
  if (reader.text("redis_url", persistence.redis_url) && persistence.redis_url.find('@') != std::string::npos) {
    problems.hide(persistence.redis_url);
  }
  if (const auto mode = reader.one_of("mode", {"DISABLE", "FILE", "REDIS"})) {
    persistence.mode = static_cast<PersistenceMode>(*mode);
  }
  if (std::string path; reader.text("file_path", path)) {
    persistence.file_path = path;
    if (path.empty()) reader.error("file_path", "must name a file");
  }
  reader.text("namespace", persistence.name_space);
  if (persistence.name_space.empty() || persistence.name_space.size() > kNamespaceBytesMax) {
    reader.error("namespace", "must be a text of 1 to 200 bytes");
  }
  if (int64_t seconds = 0; reader.integer("future_ttl_seconds", seconds, 1, kFutureTtlMax)) {
    persistence.future_ttl_seconds = seconds;
  } else if (node != nullptr && node->is_map()) {
    const Node* const ttl = node->find("future_ttl_seconds");  // here null is a value: they stay for ever
    if (ttl != nullptr && ttl->is_null()) persistence.future_ttl_seconds.reset();
  }
  read_check_fields(reader.take("check_fields"), persistence.check_fields, problems);
  reader.finish();
}

}  // namespace tuft::config
