// The command line of one tuft-worker.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "actor/supervisor.h"
#include "base/result.h"
#include "config/config.h"

namespace tuft::app {

// Returns the path of tuft-worker, which is in the directory of the running program.
Result<std::filesystem::path> worker_executable();

// Returns the number of workers that the server starts itself.
int local_workers_of(const config::ServerConfig& config);

// Returns the threads per worker if `workers` workers share `cores` evenly; at least 1.
int threads_per_worker(int cores, int workers);

// Returns the command line of a worker. `threads` is used if the model's own setting is 0.
actor::WorkerSpec worker_spec(const config::ServerConfig& config, const config::ModelConfig& model,
                              const std::filesystem::path& executable, const std::filesystem::path& socket_directory,
                              int threads);

// Returns the flags of a worker that joins for the model. Its paths, its threads and its log, which begins before it
// joins, are its own.
std::vector<std::string> joined_worker_flags(const config::ModelConfig& model);

}  // namespace tuft::app
