// The blocks of the file, each read by a function of its own.
#pragma once

#include <vector>

#include "config/config.h"
#include "config/reader.h"

namespace tuft::config {

std::vector<ModelConfig> read_models(const Node* node, int parent_line, Problems& problems);
// `path` stands in front of messages; a missing node is an empty map.
std::map<std::string, std::string> read_users(const Node* node, std::string_view path, Problems& problems);
void read_tls(const Node* node, TlsConfig& tls, Problems& problems);
// True where the block says whether telemetry is enabled.
bool read_telemetry(const Node* node, telemetry::TelemetryConfig& config, Problems& problems);
// What --trace-enable asks for: traces, and of the other signals what was on already or is asked for by name.
void enable_tracing(telemetry::TelemetryConfig& config);
void read_limits(const Node* node, Limits& limits, Problems& problems);
void read_persistence(const Node* node, PersistenceConfig& persistence, Problems& problems);

// The keys of a model entry that speak to vLLM, FSDP or Ray. They are checked as TuFT checks them and have no effect;
// each gives one warning that says what stands in its place.
struct LegacyContext {
  size_t models = 1;
  bool training = true;
  bool sampling = true;
  int max_lora_rank = 16;
};
void read_legacy_model_keys(MapReader& model, const LegacyContext& context);

}  // namespace tuft::config
