// The port at which workers join, and who has joined.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "actor/supervisor.h"
#include "actor/worker_registry.h"
#include "base/result.h"
#include "bucket/settings.h"
#include "config/config.h"
#include "join/listener.h"
#include "store/leadership.h"

namespace tuft::app {

// The actors that it makes must be destroyed before it.
class JoinPort {
 public:
  // Listens when it returns; from then on workers can join. Requires that join.port is set. `bucket` has the
  // checkpoints; absent: config.checkpoint_dir. `leadership` is null, or that of this server, which leads.
  static Result<std::unique_ptr<JoinPort>> open(const config::ServerConfig& config,
                                                const std::optional<bucket::Settings>& bucket,
                                                const store::Leadership* leadership);
  ~JoinPort();
  JoinPort(const JoinPort&) = delete;
  JoinPort& operator=(const JoinPort&) = delete;

  // Returns one for each worker that is to serve the model.
  // `may_call` is that of actor::Supervision.
  std::vector<std::unique_ptr<actor::SupervisedActor>> make_actors(const config::ModelConfig& model,
                                                                   const std::function<bool()>& may_call = {});
  // From now on no worker joins; those that serve go on. Call it before the workers are disconnected: one that joined
  // again at once would be cut off when this server ends, and would wait for it.
  void close() { registry_.close(); }
  // Reads certificates and token again; if that fails, the former stay in use.
  Status reload() { return listener_->reload(); }

 private:
  JoinPort(const config::ServerConfig& config, actor::RegistryOptions options);

  const config::ServerConfig& config_;
  actor::WorkerRegistry registry_;
  std::unique_ptr<join::Listener> listener_;
};

}  // namespace tuft::app
