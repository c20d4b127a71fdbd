#include "app/tuft/join_port.h"

#include <algorithm>
#include <utility>

#include "app/tuft/worker_command.h"
#include "base/file.h"
#include "base/id.h"
#include "bucket/bucket.h"
#include "join/digest.h"
#include "telemetry/log.h"
#include "telemetry/settings/config_json.h"

namespace tuft::app {
namespace {

constexpr Nanos kHeartbeat = 2 * kSecond;

// A worker reads and writes checkpoints itself, at the places that the server names.
Status write_proof(const config::ServerConfig& config, const std::optional<bucket::Settings>& bucket,
                   actor::RegistryOptions& options) {
  const std::string name = ".join-" + std::to_string(config.join.port);
  options.proof = random_uuid();
  if (!bucket) {
    options.proof_file = (config.checkpoint_dir / name).string();
    return write_file_atomically(options.proof_file, options.proof);
  }
  options.proof_file = name;
  options.bucket = bucket::to_json(*bucket);
  TUFT_ASSIGN(const auto opened, bucket::open_s3(*bucket));
  return opened->put(name, options.proof);
}

}  // namespace

Result<std::unique_ptr<JoinPort>> JoinPort::open(const config::ServerConfig& config,
                                                 const std::optional<bucket::Settings>& bucket,
                                                 const store::Leadership* leadership) {
  actor::RegistryOptions options;
  if (leadership != nullptr) options.epoch = leadership->epoch();
  options.version = TUFT_VERSION;
  options.telemetry = telemetry::to_json(config.telemetry);
  options.keep = config.join.keep_seconds * kSecond;
  options.expects_holders = config.persistence.mode != config::PersistenceMode::kDisable;
  for (const config::ModelConfig& model : config.supported_models) {
    if (model.worker != config::WorkerKind::kJoined) continue;
    TUFT_ASSIGN(std::string digest, join::config_sha256(model.model_path));
    options.models.push_back({model.model_name, std::move(digest), joined_worker_flags(model)});
  }
  TUFT_TRY(write_proof(config, bucket, options));

  std::unique_ptr<JoinPort> port(new JoinPort(config, std::move(options)));
  join::ListenerOptions listener;
  listener.host = config.join.host;
  listener.port = config.join.port;
  listener.tls = {{.key = "join.certificate", .path = config.join.certificate},
                  {.key = "join.private_key", .path = config.join.private_key},
                  {.key = "join.worker_authority", .path = config.join.worker_authority}};
  listener.token_file = config.join.token_file;
  listener.lease = config.join.lease_seconds * kSecond;
  TUFT_ASSIGN(port->listener_, join::Listener::start(listener, port->registry_));
  telemetry::log_info("join.listening",
                      "workers can join at " + config.join.host + ":" + std::to_string(port->listener_->port()),
                      {{"server.address", config.join.host}, {"server.port", port->listener_->port()}});
  return port;
}

JoinPort::JoinPort(const config::ServerConfig& config, actor::RegistryOptions options)
    : config_(config), registry_(std::move(options)) {}

JoinPort::~JoinPort() {
  registry_.close();
  listener_.reset();
}

std::vector<std::unique_ptr<actor::SupervisedActor>> JoinPort::make_actors(const config::ModelConfig& model,
                                                                           const std::function<bool()>& may_call) {
  actor::Supervision supervision;
  supervision.base_model = model.model_name;
  supervision.shared.rows = registry_.rows(model.model_name);
  supervision.restart_delay = 0;
  supervision.may_call = may_call;
  supervision.lease = config_.join.lease_seconds * kSecond;
  // A worker that was told to end says so in the answer to a health check, and its time runs.
  supervision.heartbeat = std::min(kHeartbeat, supervision.lease / 4);
  std::vector<std::unique_ptr<actor::SupervisedActor>> actors;
  for (int i = 0; i < model.workers; ++i) {
    actors.push_back(actor::make_joined_actor(supervision, registry_.source(model.model_name)));
  }
  return actors;
}

}  // namespace tuft::app
