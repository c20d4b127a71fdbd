#include "config/sections.h"

#include <algorithm>

#include "config/key_hash.h"

namespace tuft::config {
namespace {

constexpr size_t kUserNameMax = 200;
constexpr int kLeaseSecondsMax = 60;
constexpr size_t kNamespaceBytesMax = 200;
constexpr int64_t kFutureTtlMax = 10LL * 365 * 24 * 3600;

bool is_user_name(std::string_view name) {
  return name.size() <= kUserNameMax &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return c >= 0x20 && c != 0x7f; });
}

bool sdk_accepts(std::string_view key) {
  return key.starts_with("tml-") || key.starts_with("eyJ");
}

constexpr std::string_view kHashPrefix = "sha256:";

void check_key(const Node::Entry& entry, const std::string& path, Problems& problems) {
  if (entry.key.starts_with(kHashPrefix)) {
    if (!parse_key_hash(entry.key)) {
      problems.error(entry.line, path,
                     "is not a hash as `tuft hash-key` prints it (sha256:<salt>:<hash>, lower-case hex)");
    }
  } else if (!sdk_accepts(entry.key)) {
    problems.warning(entry.line, path, "the Tinker SDK refuses API keys that do not start with \"tml-\"");
  }
}

}  // namespace

std::map<std::string, std::string> read_users(const Node* node, std::string_view path, Problems& problems) {
  std::map<std::string, std::string> users;
  if (node == nullptr || node->is_null()) return users;
  if (!node->is_map()) {
    problems.error(node->line, path, "must be a mapping of API keys to users (\"tml-...: alice\" lines)");
    return users;
  }
  // All keys are hidden first, so that a message about one entry cannot show another.
  for (const Node::Entry& entry : node->entries) problems.hide(entry.key);
  for (size_t i = 0; i < node->entries.size(); ++i) {
    const Node::Entry& entry = node->entries[i];
    const std::string entry_path = std::string(path) + " (entry " + std::to_string(i + 1) + ")";
    if (entry.key.empty()) {
      problems.error(entry.line, entry_path, "has an empty API key");
    } else if (entry.value.is_map() || entry.value.is_list()) {
      problems.error(entry.line, entry_path, "must be the name of a user");
    } else if (entry.value.text.empty()) {
      problems.warning(entry.line, entry_path, "names no user, so the key is refused");
    } else if (!is_user_name(entry.value.text)) {
      problems.error(entry.line, entry_path, "the user must be a text of at most 200 bytes without control characters");
    } else {
      check_key(entry, entry_path, problems);
      users[kept_form_of_key(entry.key)] = entry.value.text;
    }
  }
  return users;
}

void read_limits(const Node* node, Limits& limits, Problems& problems) {
  MapReader reader(node, "limits", problems);
  reader.integer("request_body_bytes_max", limits.request_body_bytes_max, 1024);
  reader.integer("request_parts_max", limits.request_parts_max, 1024);
  reader.integer("futures_per_user_max", limits.futures_per_user_max, 1);
  reader.integer("sessions_per_user_max", limits.sessions_per_user_max, 1);
  // One session has room with the largest description that is accepted (session_description.h).
  reader.integer("session_bytes_per_user_max", limits.session_bytes_per_user_max, 256 << 10);
  reader.integer("runs_per_user_max", limits.runs_per_user_max, 1);
  reader.integer("samplers_per_user_max", limits.samplers_per_user_max, 1);
  reader.integer("unnamed_samplers_per_run_max", limits.unnamed_samplers_per_run_max, 1);
  reader.integer("reorder_window", limits.reorder_window, 1);
  reader.integer("gap_timeout_seconds", limits.gap_timeout_seconds, 1);
  // The SDK may poll again after a back-off of 30 s and a timeout of 45 s. A shorter time would lose results.
  reader.integer("future_retention_seconds", limits.future_retention_seconds, 120);
  reader.integer("future_bytes_per_user_max", limits.future_bytes_per_user_max, 1 << 20);
  reader.integer("future_bytes_max", limits.future_bytes_max, 1 << 20);
  reader.integer("samples_in_flight_per_user_max", limits.samples_in_flight_per_user_max, 1);
  reader.integer("queued_bytes_per_user_max", limits.queued_bytes_per_user_max, 1 << 20);
  reader.integer("journal_bytes_per_user_max", limits.journal_bytes_per_user_max, 1 << 20);
  reader.integer("checkpoint_bytes_per_user_max", limits.checkpoint_bytes_per_user_max, 0);
  reader.integer("checkpoints_per_user_max", limits.checkpoints_per_user_max, 100);
  reader.integer("custom_losses_per_user_max", limits.custom_losses_per_user_max, 1);
  reader.integer("custom_loss_bytes_per_user_max", limits.custom_loss_bytes_per_user_max, 128 << 10);
  reader.integer("sample_record_bytes_per_user_max", limits.sample_record_bytes_per_user_max, 1 << 20);
  reader.integer("sample_record_bytes_max", limits.sample_record_bytes_max, 1 << 20);
  reader.integer("archives_per_user_max", limits.archives_per_user_max, 1);
  reader.integer("archives_max", limits.archives_max, 1);
  // The SDK sends a heartbeat every 10 s, and some may be lost.
  reader.integer("session_idle_seconds", limits.session_idle_seconds, 30);
  reader.integer("sampling_silence_seconds", limits.sampling_silence_seconds, 30);
  reader.boolean("save_before_expiry", limits.save_before_expiry);
  reader.integer("expired_checkpoint_ttl_seconds", limits.expired_checkpoint_ttl_seconds, 0);
  reader.integer("audit_retention_days", limits.audit_retention_days, 1, 3650);
  reader.integer("audit_events_per_user_max", limits.audit_events_per_user_max, 100, 1'000'000);
  reader.integer("usage_lines_per_user_max", limits.usage_lines_per_user_max, 100, 1'000'000);
  reader.integer("ended_sessions_per_user_max", limits.ended_sessions_per_user_max, 10, 6'000);
  reader.integer("receiving_bytes_max", limits.receiving_bytes_max, 1 << 20);
  if (limits.receiving_bytes_max < limits.request_body_bytes_max) {
    reader.error("receiving_bytes_max", "must be at least limits.request_body_bytes_max, which is " +
                                            std::to_string(limits.request_body_bytes_max) +
                                            "; otherwise the largest bodies are never received");
  }
  reader.integer("sending_bytes_max", limits.sending_bytes_max, 1 << 20);
  reader.integer("answer_rate_min", limits.answer_rate_min, 1);
  reader.integer("answer_stall_seconds", limits.answer_stall_seconds, 1, 3600);
  reader.integer("connections_max", limits.connections_max, 1);
  reader.integer("connections_per_address_max", limits.connections_per_address_max, 1);
  // The SDK sends about 1 KiB; no single header may exceed 64 KiB.
  reader.integer("header_bytes_max", limits.header_bytes_max, 4096, 64 << 10);
  reader.integer("unfinished_head_bytes_max", limits.unfinished_head_bytes_max, 1 << 20);
  reader.integer("request_timeout_seconds", limits.request_timeout_seconds, 1, 3600);
  reader.integer("idle_timeout_seconds", limits.idle_timeout_seconds, 1, 3600);
  reader.finish();
}

void read_tls(const Node* node, TlsConfig& tls, Problems& problems) {
  MapReader reader(node, "tls", problems);
  std::string certificate, private_key;
  reader.text("certificate", certificate);
  reader.text("private_key", private_key);
  if (certificate.empty() != private_key.empty()) {
    reader.error(certificate.empty() ? "certificate" : "private_key",
                 "is missing: HTTPS needs tls.certificate and tls.private_key; give both files, or none for HTTP");
  }
  tls.certificate = certificate;
  tls.private_key = private_key;
  reader.finish();
}

namespace {

// The names in TuFT's ConfigCheckField.
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
  // Read first, so that no message shows it: it may contain a password.
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
    const Node* const ttl = node->find("future_ttl_seconds");  // here null is a value: results do not expire
    if (ttl != nullptr && ttl->is_null()) persistence.future_ttl_seconds.reset();
  }
  reader.integer("lease_seconds", persistence.lease_seconds, 1, kLeaseSecondsMax);
  reader.text("advertise", persistence.advertise);
  if (persistence.advertise.size() > kNamespaceBytesMax || persistence.advertise.find(' ') != std::string::npos) {
    reader.error("advertise", "must be an address of at most 200 bytes, such as https://a.example.com:10610");
  }
  read_check_fields(reader.take("check_fields"), persistence.check_fields, problems);
  reader.finish();
}

}  // namespace tuft::config
