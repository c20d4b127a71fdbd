// The base model of a worker: its weights in memory, and their service.
#pragma once

#include <memory>

#include "app/tuft_worker/options.h"
#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"

namespace tuft::app {

struct LoadedModel {
  std::unique_ptr<engine::Engine> engine;
  Nanos begin = 0;  // of the loading
};

// Reads the weights.
Result<LoadedModel> load_model(const WorkerFlags& flags);

// Serves a base model on flags.socket, or on one connection after the other, between which it keeps its adapters and
// remembers its calls (worker/kept_calls.h). Confined to its owner's thread.
class ServedModel {
 public:
  static Result<std::unique_ptr<ServedModel>> start(const WorkerFlags& flags, LoadedModel model);
  virtual ~ServedModel() = default;
  // Ends the service and fails the calls that run. The gauges can be read until this object is destroyed.
  virtual void stop() = 0;

  // Serves a connected socket, which it takes over, from now on.
  virtual void connect(int descriptor) = 0;
  // Returns the number of training adapters that it keeps for the next connection.
  virtual size_t adapters() const = 0;
  // The process was told to end: tells so to the server, and serves until `ended_fd` is readable, but no longer than
  // `limit`.
  virtual void drain(int ended_fd, Nanos limit) = 0;
};

// Ends the service when the process is told to end, and sends what telemetry has left, while the gauges can be read.
void end_service(ServedModel& served);

}  // namespace tuft::app
