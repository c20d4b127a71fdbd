// Files, whole and safely. All paths are the server's own; names that clients send are validated before they get
// here (control/checkpoint_path.h).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tuft {

// The whole file; kNotFound, kPayloadTooLarge over size_bytes_max, kInternal.
Result<std::string> read_file(const std::filesystem::path& path, size_t size_bytes_max);

// Writes beside `path`, syncs, and renames over it, so that a reader sees the old or the new content.
Status write_file_atomically(const std::filesystem::path& path, std::string_view content);

// fsync of a directory: makes renames and new names in it durable.
Status sync_directory(const std::filesystem::path& path);

// Turns a leading "~" into $HOME.
std::filesystem::path expand_user(std::string_view path);

}  // namespace tuft
