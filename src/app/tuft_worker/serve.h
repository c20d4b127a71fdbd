// Runs a worker: telemetry, weights, service, end.
#pragma once

#include "app/tuft_worker/options.h"
#include "base/result.h"

namespace tuft::app {

// Returns after SIGTERM or SIGINT. Returns an error if the worker could not serve.
Status serve(const WorkerFlags& flags);

}  // namespace tuft::app
