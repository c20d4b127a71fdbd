// The life of a worker: telemetry, weights, service, end.
#pragma once

#include "app/tuft_worker/options.h"
#include "base/result.h"

namespace tuft::app {

// Returns when SIGTERM or SIGINT has come. Errors are what kept it from serving.
Status serve(const WorkerFlags& flags);

}  // namespace tuft::app
