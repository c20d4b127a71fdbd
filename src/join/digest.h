// SHA-256.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tuft::join {

inline constexpr size_t kSha256Bytes = 32;
using Sha256 = std::array<unsigned char, kSha256Bytes>;
Sha256 sha256(std::string_view text);

// Tells whether two machines have the same base model: returns the SHA-256 of the directory's config.json in
// hexadecimal.
Result<std::string> config_sha256(const std::filesystem::path& model_directory);

}  // namespace tuft::join
