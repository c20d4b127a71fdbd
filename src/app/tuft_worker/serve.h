// Runs a worker: telemetry, weights, service, end.
#pragma once

#include "app/tuft_worker/options.h"

namespace tuft::app {

// Returns after SIGTERM or SIGINT. Returns the exit status of the process: 1 if the worker could not serve; the log
// then says why.
int serve(const WorkerFlags& flags);

}  // namespace tuft::app
