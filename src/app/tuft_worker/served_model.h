// The base model of a worker: its weights in memory, and the service of them.
#pragma once

#include <memory>

#include "app/tuft_worker/end_signal.h"
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

// Where the calls come from: flags.socket, or a connection.
struct CallSource {
  int connection = -1;  // owned by the service
  int ended_fd = -1;    // readable once the connection has ended
  Nanos drain = 0;      // after a signal, it serves until the connection ends, and at most so long
};

// Serves until a signal comes or the connection ends.
Status serve_model(const WorkerFlags& flags, LoadedModel model, const CallSource& calls, const EndSignal& end);

}  // namespace tuft::app
