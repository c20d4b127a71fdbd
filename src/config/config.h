// The configuration of `tuft launch`, in TuFT's YAML format. An unknown key is an error that suggests the nearest known
// key. Every message names the key, the rule and the cure, and never a secret.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bucket/settings.h"
#include "telemetry/telemetry.h"

namespace tuft::config {

// kLocal: the server starts the model's worker. kJoined: workers join from anywhere.
enum class WorkerKind : uint8_t { kLocal, kJoined };
enum class BackEnd : uint8_t { kNative, kTorch };
enum class WeightsDtype : uint8_t { kAuto, kFloat32, kBfloat16 };  // kAuto: as stored, but f16 becomes f32

struct ModelConfig {
  std::string model_name;            // the public name; unique
  std::filesystem::path model_path;  // a Hugging Face model directory
  int max_model_len = 0;             // tokens; prompt + output, and a datum's length
  bool training = true;
  bool sampling = true;
  int max_lora_rank = 128;
  int lora_alpha_ratio = 2;       // alpha = rank * ratio
  int max_loras = 1;              // has no effect; accepted for TuFT's files
  int train_batch_tokens = 512;   // token budget of one training pass (replaces micro_batch_size)
  int sample_batch_tokens = 256;  // token budget of one sampling step
  std::optional<int> default_max_tokens;
  WorkerKind worker = WorkerKind::kLocal;
  int workers = 1;         // that serve the model at the same time
  bool replicate = false;  // what training runs do since their newest checkpoints is done again if their worker is lost
  BackEnd backend = BackEnd::kNative;
  std::string device = "cpu";  // "cuda", "cuda:N" with the torch back end
  bool cuda_graphs = false;    // decode steps are captured and replayed; the default is true on a GPU
  WeightsDtype weights_dtype = WeightsDtype::kAuto;
  int threads = 0;                   // 0: the machine's cores, divided between the models
  int64_t kv_cache_bytes = 0;        // 0: half of the free memory after loading the weights, divided between the models
  int64_t adapter_memory_bytes = 0;  // 0: half of the free memory after weights and KV cache, divided likewise
  int64_t adapter_page_bytes = int64_t{256} << 30;  // of page files; a user may have a quarter. 0: no limit
  int training_share = 50;  // percent of the engine's time for training while training and sampling compete
};

struct Limits {
  int64_t request_body_bytes_max = 64LL << 20;  // also the decompressed size
  int64_t request_parts_max = 1 << 18;          // datums, chunks, tensors and their fields in a body
  int futures_per_user_max = 20'000;            // unfinished ones
  int sessions_per_user_max = 1'000;
  int64_t session_bytes_per_user_max = 16 << 20;  // of what the clients of all sessions say about themselves
  int runs_per_user_max = 256;
  int samplers_per_user_max = 1'000;
  int unnamed_samplers_per_run_max = 16;             // that unnamed saves made, without those that follow the run
  int samples_in_flight_per_user_max = 8'192;        // over all samplers
  int64_t queued_bytes_per_user_max = 1LL << 30;     // of unfinished operations
  int64_t journal_bytes_per_user_max = 256LL << 20;  // of what runs with replicate: true did since their checkpoints
  int64_t checkpoint_bytes_per_user_max = 0;         // 0: no limit
  int64_t checkpoints_per_user_max = 10'000;         // one more for each 4 KiB of their metadata
  int custom_losses_per_user_max = 256;              // of all sessions
  int64_t custom_loss_bytes_per_user_max = 4 << 20;  // of their graphs
  int64_t sample_record_bytes_per_user_max = 256LL << 20;  // above it, the longest unused records are dropped
  int64_t sample_record_bytes_max = 1LL << 30;             // the same of all users; the one with the most loses records
  int archives_per_user_max = 16;     // downloads of checkpoints at a time; each holds three files open
  int archives_max = 256;             // the same of all users
  int session_idle_seconds = 3'600;   // a session without a heartbeat or request ends after this time
  int sampling_silence_seconds = 60;  // the samples of a session without a sign of life end after it
  bool save_before_expiry = true;     // runs of such a session are saved first, as "expired-<time>"
  int64_t expired_checkpoint_ttl_seconds = 7 * 24 * 3'600;  // of what is saved so; 0: it stays
  int audit_retention_days = 90;                            // of audit events and token counts
  int audit_events_per_user_max = 10'000;                   // each of what a user did and of what others did
  int usage_lines_per_user_max = 50'000;                    // of token counts; further ones are summed up
  int ended_sessions_per_user_max = 4'096;                  // that are remembered
  int reorder_window = 4'096;                               // operations of a run that may wait for a missing seq_id
  int gap_timeout_seconds = 300;                            // how long they wait for it
  int future_retention_seconds = 3'600;                     // how long a finished future can be retrieved
  int64_t future_bytes_per_user_max = 512LL << 20;          // the same for one user, in memory and in the store
  int64_t future_bytes_max = 1LL << 30;                     // above it, the user with the most bytes loses results
  int64_t receiving_bytes_max = 1LL << 30;                  // bodies that are being received, over all connections
  int64_t sending_bytes_max = 1LL << 30;                    // answers that wait to be read, over all connections
  int64_t answer_rate_min = 16 << 10;  // bytes per second; a client that reads more slowly is disconnected
  int answer_stall_seconds = 60;       // how long a client may stop reading
  int connections_max = 16'384;
  int connections_per_address_max = 8'192;         // of one client address
  int header_bytes_max = 64 << 10;                 // request line and headers
  int64_t unfinished_head_bytes_max = 64LL << 20;  // of request heads above 4 KiB, over all connections
  int request_timeout_seconds = 60;                // for receiving a request, from its first byte
  int idle_timeout_seconds = 120;                  // between two requests of a connection
};

// The files of HTTPS in PEM form; empty: plain HTTP.
struct TlsConfig {
  std::filesystem::path certificate;  // the chain, beginning with the server's certificate
  std::filesystem::path private_key;
};

// The port at which workers join (join/listener.h). All connections are TLS.
struct JoinConfig {
  std::string host;                   // default: the server's
  uint16_t port = 0;                  // 0: no worker can join
  std::filesystem::path certificate;  // default: that of tls, as the next
  std::filesystem::path private_key;
  std::filesystem::path token_file;  // a worker must know its content, ...
  std::filesystem::path
      worker_authority;    // ... and have a certificate that this file's certificates signed; one suffices
  int lease_seconds = 30;  // a worker that does not answer for so long is disconnected
  int keep_seconds = 60;   // a worker keeps its adapters for so long after its connection has ended
};

// A bucket of an S3-compatible store for checkpoints.
struct BucketConfig {
  bucket::Settings settings;  // without what the following files hold
  std::filesystem::path
      credentials_file;           // in the format of the AWS tools; empty: AWS_ACCESS_KEY_ID and so on have them
  std::filesystem::path ca_file;  // authorities of the endpoint's certificate; empty: the machine's
};

// Reads the files of the configuration, and the environment. The result has secrets: never print it. kInvalidArgument
// with the key and the cure; no message shows a value.
Result<bucket::Settings> load_bucket_settings(const BucketConfig& config);

enum class PersistenceMode : uint8_t { kDisable, kFile, kRedis };

// The store in which the server keeps its state over restarts. Checkpoints are always kept.
struct PersistenceConfig {
  PersistenceMode mode = PersistenceMode::kDisable;
  std::string redis_url = "redis://localhost:6379/0";  // may hold a password: never print it
  std::filesystem::path file_path;                     // default: <home>/persistence.db
  std::string name_space = "persistence-tuft-server";  // the prefix of every key
  std::optional<int64_t> future_ttl_seconds = 86'400;  // results in the store expire after this time; absent: never
  // With REDIS, servers with one namespace agree on one that leads (store/leadership.h); the others stand by.
  int lease_seconds = 3;  // the time after which another server takes over from a leader that is gone
  std::string advertise;  // the address of this server that the others tell clients; empty: host and port
  // The settings, by TuFT's names, that must equal those of the stored state. SUPPORTED_MODELS is always included.
  std::vector<std::string> check_fields = {"SUPPORTED_MODELS"};
};

// The web console. Without it the API that it reads is still there.
struct ConsoleConfig {
  bool enabled = true;
  // The users who see the telemetry of all users, and the server's own; the others see what is theirs.
  std::vector<std::string> operators;
};

// The embedded store of recent telemetry (telemetry_store/store.h).
struct TelemetryStoreConfig {
  bool enabled = true;
  std::filesystem::path directory;  // default: <home>/telemetry
  int64_t disk_bytes_max = 1LL << 30;
  int64_t memory_bytes_max = 64LL << 20;
  int64_t age_max_seconds = 24 * 3'600;
};

// The ports that take OTLP from users' own programs; 0: none.
struct TelemetryIntakeConfig {
  uint16_t grpc_port = 0;
  uint16_t http_port = 0;
};

struct ServerConfig {
  std::string host = "127.0.0.1";
  uint16_t port = 10610;
  std::string public_url;  // "https://tuft.example/prefix", without a slash at the end; empty: as each request says
  std::string log_level = "info";
  std::string log_format = "text";  // or "json"
  std::filesystem::path home;       // $TUFT_HOME, default ~/.tuft
  std::filesystem::path checkpoint_dir;
  std::vector<ModelConfig> supported_models;
  // Maps each API key, as kept_form_of_key() (key_hash.h) returns it, to its user. Secret: never print it.
  std::map<std::string, std::string> authorized_users;
  // A file with further users, which is read again on SIGHUP and when it changes. Empty: no file.
  std::filesystem::path authorized_users_file;
  TlsConfig tls;
  JoinConfig join;
  // Where checkpoints are instead of in checkpoint_dir, which then holds only temporary files. Absent: there is none.
  std::optional<BucketConfig> bucket;
  std::string model_owner = "local-user";
  ConsoleConfig console;
  telemetry::TelemetryConfig telemetry;
  TelemetryStoreConfig telemetry_store;
  TelemetryIntakeConfig telemetry_intake;
  PersistenceConfig persistence;
  Limits limits;
};

struct Loaded {
  ServerConfig config;
  std::vector<std::string> warnings;  // e.g. for keys that have no effect, with their replacements
};

// Settings of the command line. They override the environment, which overrides the file.
struct Overrides {
  std::optional<std::string> host, port, log_level, log_format, config_path, checkpoint_dir;
  bool trace_enable = false;
  std::optional<std::string> otlp_traces_endpoint;
};

// The contents of authorized_users_file: a YAML mapping like authorized_users, which must end with a newline.
struct UsersFile {
  std::map<std::string, std::string> users;
  std::vector<std::string> warnings;
};
// Reads that file from the disk. See load_config() about keys in memory.
Result<UsersFile> read_users_file(const std::filesystem::path& path);

// Returns the operators that are not among `users`, which are as in authorized_users.
std::vector<std::string> unknown_operators(const ConsoleConfig& console,
                                           const std::map<std::string, std::string>& users);

// Returns $TUFT_HOME, else ~/.tuft.
std::filesystem::path home_directory();

// Finds and reads the file (--config, $TUFT_CONFIG, $TUFT_HOME/configs/tuft_config.yaml) and applies the overrides. No
// API key of the file stays in memory in plain text, except what the environment holds.
Result<Loaded> load_config(const Overrides& overrides);

// Parses the text of a file. `origin` is the prefix of messages.
Result<Loaded> parse_config(std::string_view yaml, std::string_view origin);

}  // namespace tuft::config
