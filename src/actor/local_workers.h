// The workers that the server itself starts, each on a unix socket of its own.
#pragma once

#include <memory>

#include "actor/supervisor.h"
#include "actor/worker_source.h"

namespace tuft::actor {

std::unique_ptr<WorkerSource> local_workers(WorkerSpec spec, std::shared_ptr<WorkerRows> rows);

}  // namespace tuft::actor
