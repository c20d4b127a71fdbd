// Reads the sections of the configuration file.
#pragma once

#include <optional>
#include <vector>

#include "config/config.h"
#include "config/reader.h"

namespace tuft::config {

std::vector<ModelConfig> read_models(const Node* node, int parent_line, Problems& problems);
// `path` is the prefix of messages. A missing node is an empty map.
std::map<std::string, std::string> read_users(const Node* node, std::string_view path, Problems& problems);
void read_tls(const Node* node, TlsConfig& tls, Problems& problems);
// Requires: the models, the server's address and tls have been read.
void read_join(const Node* node, ServerConfig& config, Problems& problems);
void read_bucket(const Node* node, std::optional<BucketConfig>& bucket, Problems& problems);
// Reads telemetry, telemetry.store and telemetry.intake. Returns true if the section has the key `enabled`.
bool read_telemetry(const Node* node, ServerConfig& config, Problems& problems);
void read_store(const Node* node, TelemetryStoreConfig& store, Problems& problems);
// Requires: the store and the server's port have been read.
void read_intake(const Node* node, ServerConfig& config, Problems& problems);
// Requires: the users have been read.
void read_console(const Node* node, ServerConfig& config, Problems& problems);
// Implements --trace-enable: enables traces, and keeps other signals on only if they were already enabled or are
// configured explicitly.
void enable_tracing(telemetry::TelemetryConfig& config);
void read_limits(const Node* node, Limits& limits, Problems& problems);
void read_persistence(const Node* node, PersistenceConfig& persistence, Problems& problems);

// Reads the keys of a model entry that configure vLLM, FSDP or Ray in TuFT. They are checked as in TuFT and have no
// effect. Each gives one warning that names its replacement.
struct LegacyContext {
  size_t models = 1;
  bool training = true;
  bool sampling = true;
  std::optional<int> max_lora_rank;  // absent: the default
};
void read_legacy_model_keys(MapReader& model, const LegacyContext& context);

}  // namespace tuft::config
