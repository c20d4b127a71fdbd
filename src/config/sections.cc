#include "config/sections.h"

#include <algorithm>

namespace tuft::config {
namespace {

constexpr size_t kUserNameMax = 200;

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

void read_persistence(const Node* node, Problems& problems) {
  MapReader reader(node, "persistence", problems);
  const auto mode = reader.one_of("mode", {"DISABLE", "FILE", "REDIS"});
  if (mode && *mode != 0) {
    reader.error("mode",
                 "FILE and REDIS are not available in this version; write DISABLE. Checkpoints are kept in "
                 "checkpoint_dir in any case");
  }
  for (const std::string_view key : {"redis_url", "file_path", "namespace", "future_ttl_seconds", "check_fields"}) {
    if (reader.take(key) != nullptr) reader.warning(key, "has no effect while persistence.mode is DISABLE");
  }
  reader.finish();
}

}  // namespace tuft::config
