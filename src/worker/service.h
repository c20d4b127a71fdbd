// The gRPC server of one worker: tuft.worker.v1.ModelActor on a unix socket. gRPC's threads parse and check; the
// engine loop does the work and finishes the calls.
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
  std::string base_model;  // for messages
};

class WorkerServer {
 public:
  virtual ~WorkerServer() = default;
  // Takes no more calls, cancels those that still run after `grace`. Stop the loop first, which answers them.
  virtual void shutdown(Nanos grace) = 0;
};

// Listens when this returns. `loop` outlives the server.
Result<std::unique_ptr<WorkerServer>> start_server(EngineLoop& loop, const ServerOptions& options);

}  // namespace tuft::worker
