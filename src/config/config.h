// The configuration of `tuft launch`: TuFT's YAML format, typed. Unknown keys are errors that name the nearest known
// one; every message names the key, the value's rule and the cure, and never a secret.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "telemetry/telemetry.h"

namespace tuft::config {

enum class BackEnd : uint8_t { kNative, kTorch };
enum class WeightsDtype : uint8_t { kAuto, kFloat32, kBfloat16 };  // kAuto: as stored, with f16 held as f32

struct ModelConfig {
  std::string model_name;            // public name; unique
  std::filesystem::path model_path;  // a Hugging Face model directory
  int max_model_len = 0;             // tokens; prompt + output, and a datum's length
  bool training = true;
  bool sampling = true;
  int max_lora_rank = 16;
  int lora_alpha_ratio = 2;       // alpha = rank * ratio
  int max_loras = 1;              // kept for TuFT's files; see docs/configuration.md
  int train_batch_tokens = 512;   // token budget of one training pass (replaces micro_batch_size)
  int sample_batch_tokens = 256;  // token budget of one sampling step
  std::optional<int> default_max_tokens;
  BackEnd backend = BackEnd::kNative;
  std::string device = "cpu";  // "cuda", "cuda:N" with the torch back end
  bool cuda_graphs = false;    // decode steps are recorded and played again
  WeightsDtype weights_dtype = WeightsDtype::kAuto;
  int threads = 0;             // 0: one per core of the machine, shared between the models
  int64_t kv_cache_bytes = 0;  // 0: half of the memory that is free once the weights are loaded, shared like threads
  int64_t adapter_memory_bytes = 0;  // 0: half of the memory that is free beside weights and KV cache, shared likewise
  int training_share = 50;           // percent of the engine's time, while there is sampling to do as well
};

struct Limits {
  int64_t request_body_bytes_max = 64LL << 20;  // also the decompressed size
  int futures_per_user_max = 20'000;            // not yet finished
  int sessions_per_user_max = 1'000;
  int runs_per_user_max = 64;
  int samplers_per_user_max = 1'000;
  int samples_in_flight_per_user_max = 8'192;     // accepted and not answered, over all samplers
  int64_t queued_bytes_per_user_max = 1LL << 30;  // of operations that have not finished
  int64_t checkpoint_bytes_per_user_max = 0;      // 0: no limit
  int session_idle_seconds = 3'600;               // without a sign of life, then a session ends
  bool save_before_expiry = true;                 // a run that ends so is saved as "expired-<time>" first
  int audit_retention_days = 90;                  // of audit events and token counts
  int reorder_window = 4'096;                     // operations of a run that may wait for a missing seq_id
  int gap_timeout_seconds = 300;                  // how long they wait for it
  int future_retention_seconds = 3'600;           // a finished future can be retrieved this long
  int64_t future_bytes_max = 1LL << 30;           // over it, the longest-delivered results go first
  int64_t receiving_bytes_max = 1LL << 30;        // bodies that are being received, of all connections
  int connections_max = 16'384;
  int connections_per_address_max = 8'192;  // of one client address
  int header_bytes_max = 64 << 10;          // request line and headers
  int request_timeout_seconds = 60;         // to receive one request whole, once it has begun
  int idle_timeout_seconds = 120;           // between two requests of a connection
};

// HTTPS. Both files are PEM; empty: plain HTTP.
struct TlsConfig {
  std::filesystem::path certificate;  // the chain, the server's own first
  std::filesystem::path private_key;
};

enum class PersistenceMode : uint8_t { kDisable, kFile, kRedis };

// What of the server's state outlives it. Checkpoints always do.
struct PersistenceConfig {
  PersistenceMode mode = PersistenceMode::kDisable;
  std::string redis_url = "redis://localhost:6379/0";  // may hold a password: never print it
  std::filesystem::path file_path;                     // default: <home>/persistence.db
  std::string name_space = "persistence-tuft-server";  // in front of every key
  std::optional<int64_t> future_ttl_seconds = 86'400;  // of results in the store; none: they stay
  // What a start compares with what the state was made with: SUPPORTED_MODELS always, and others by TuFT's names.
  std::vector<std::string> check_fields = {"SUPPORTED_MODELS"};
};

struct ServerConfig {
  std::string host = "127.0.0.1";
  uint16_t port = 10610;
  std::string log_level = "info";
  std::string log_format = "text";  // or "json"
  std::filesystem::path home;       // $TUFT_HOME, default ~/.tuft
  std::filesystem::path checkpoint_dir;
  std::vector<ModelConfig> supported_models;
  // API key, or its hash as `tuft hash-key` prints it (see control/api_keys.h) -> user. A secret: never print it.
  std::map<std::string, std::string> authorized_users;
  // More of them, in a file that is read again on SIGHUP and when it changes. Empty: none.
  std::filesystem::path authorized_users_file;
  TlsConfig tls;
  std::string model_owner = "local-user";
  telemetry::TelemetryConfig telemetry;
  PersistenceConfig persistence;
  Limits limits;
};

struct Loaded {
  ServerConfig config;
  std::vector<std::string> warnings;  // keys accepted without effect, and what replaces them
};

// What the command line says, over the environment, over the file.
struct Overrides {
  std::optional<std::string> host, port, log_level, log_format, config_path, checkpoint_dir;
  bool trace_enable = false;
  std::optional<std::string> otlp_traces_endpoint;
};

// The users of authorized_users_file: a YAML mapping as authorized_users is, its last line ended. Reads the disk.
struct UsersFile {
  std::map<std::string, std::string> users;
  std::vector<std::string> warnings;
};
Result<UsersFile> read_users_file(const std::filesystem::path& path);

// "sha256:<salt in hex>:<SHA-256 in hex>"; see control/api_keys.h.
bool is_key_hash(std::string_view key);

// Finds and reads the file (--config, $TUFT_CONFIG, $TUFT_HOME/configs/tuft_config.yaml) and applies the overrides.
Result<Loaded> load_config(const Overrides& overrides);

// The same from text; `origin` stands in front of messages.
Result<Loaded> parse_config(std::string_view yaml, std::string_view origin);

}  // namespace tuft::config
