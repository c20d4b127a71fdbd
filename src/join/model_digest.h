// Tells whether two machines have the same base model.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace tuft::join {

// Returns the SHA-256 of the directory's config.json in hexadecimal.
Result<std::string> config_sha256(const std::filesystem::path& model_directory);

}  // namespace tuft::join
