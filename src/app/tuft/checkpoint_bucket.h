// The bucket in which a server keeps its checkpoints.
#pragma once

#include <memory>
#include <optional>

#include "base/result.h"
#include "bucket/settings.h"
#include "config/config.h"
#include "control/checkpoints/checkpoint_storage.h"

namespace tuft::app {

// Reads the settings, and passes them to the workers that this process starts, in an environment variable. Absent: the
// configuration has no bucket. Call it before other threads read the environment.
Result<std::optional<bucket::Settings>> take_bucket_settings(const config::ServerConfig& config);

// Returns null if there is no bucket. Fails if the bucket cannot be reached, read and written.
Result<std::unique_ptr<control::CheckpointStorage>> open_storage(const config::ServerConfig& config,
                                                                 const std::optional<bucket::Settings>& settings);

}  // namespace tuft::app
