// Reads and writes files. Paths must be validated: names from clients are checked in
// control/types/checkpoint_path.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <sys/types.h>

#include "base/result.h"

namespace tuft {

inline constexpr std::string_view kDiskFull = "disk_full";
// The error of a system call that failed with the errno `code`: kNotFound, kResourceExhausted with the reason
// kDiskFull (also for a disk quota), else kInternal "io". `what`: "write", "sync", ...
Error file_error(std::string_view what, const std::filesystem::path& path, int code);

// Returns the content. Errors: kNotFound, kPayloadTooLarge above `size_bytes_max`, kInternal.
Result<std::string> read_file(const std::filesystem::path& path, size_t size_bytes_max);

// Reads `size` bytes at `position` of an open file. Returns the number of bytes read, which is smaller than `size` only
// where the file ends; -1 with errno if the system call failed. Needs no memory.
ssize_t read_at(int descriptor, uint64_t position, void* out, size_t size);

// Writes a temporary file, syncs it and renames it to `path`, so that readers see the old or the new content. A process
// that is killed meanwhile leaves "<path>.tmp-<its id>.<random>".
Status write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Removes what processes that no longer exist left when they were killed in write_file_atomically(path).
void remove_unfinished_writes(const std::filesystem::path& path);

// Syncs the content of a file.
Status sync_file(const std::filesystem::path& path);
// Syncs a directory, which makes new and renamed entries in it durable.
Status sync_directory(const std::filesystem::path& path);

// Returns a descriptor of the directory, by which this process alone has its lock: until it closes the descriptor, or
// ends. -1 if somebody else has the lock, or the directory cannot be opened.
int lock_directory(const std::filesystem::path& path);

// Replaces a leading "~" by $HOME.
std::filesystem::path expand_user(std::string_view path);

}  // namespace tuft
