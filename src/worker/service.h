// The gRPC server of one worker: tuft.worker.v1.ModelActor on a unix socket, or on a connection to its server. gRPC's
// threads parse and check requests; the engine loop does the work and finishes the calls.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "worker/engine_loop.h"

namespace tuft::worker {

struct ServerOptions {
  std::filesystem::path socket;  // to listen on; empty: it serves connections (connect()) alone
  std::string base_model;        // named in error messages
  // Of the answers that it remembers for a server whose connection broke (kept_calls.h); 0: it remembers no call.
  int64_t kept_bytes_max = 0;
};

class WorkerServer {
 public:
  virtual ~WorkerServer() = default;
  // Serves a connected socket that does not block. Takes it over.
  virtual void connect(int descriptor) = 0;
  // Returns the number of training adapters that it holds; 0 if it remembers no call.
  virtual size_t adapters() const = 0;
  // Tells the control plane, when it asks next, that the worker will end after `limit`. Returns false if it has never
  // asked, so that there is nothing to wait for.
  virtual bool drain(Nanos limit) = 0;
  // Refuses new calls and cancels those that still run after `grace`. Stop the loop first: it answers its calls.
  virtual void shutdown(Nanos grace) = 0;
};

// Starts a server that can be called when this returns. `loop` must outlive it.
Result<std::unique_ptr<WorkerServer>> start_server(EngineLoop& loop, const ServerOptions& options);

}  // namespace tuft::worker
