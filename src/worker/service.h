// The gRPC server of one worker: tuft.worker.v1.ModelActor on a unix socket. gRPC's threads parse and check requests;
// the engine loop does the work and finishes the calls.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "worker/engine_loop.h"

namespace tuft::worker {

struct ServerOptions {
  std::filesystem::path socket;
  std::string base_model;  // named in error messages
};

class WorkerServer {
 public:
  virtual ~WorkerServer() = default;
  // Refuses new calls and cancels those that still run after `grace`. Stop the loop first: it answers its calls.
  virtual void shutdown(Nanos grace) = 0;
};

// Starts a server that listens when this returns. `loop` must outlive it.
Result<std::unique_ptr<WorkerServer>> start_server(EngineLoop& loop, const ServerOptions& options);

}  // namespace tuft::worker
