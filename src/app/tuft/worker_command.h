// The command line of one tuft-worker.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "actor/supervisor.h"
#include "base/result.h"
#include "config/config.h"

namespace tuft::app {

// tuft-worker stands beside the running program.
Result<std::filesystem::path> worker_executable();

// `threads` where the model's own setting is 0.
actor::WorkerSpec worker_spec(const config::ServerConfig& config, const config::ModelConfig& model,
                              const std::filesystem::path& executable, const std::filesystem::path& socket_directory,
                              int threads);

}  // namespace tuft::app
