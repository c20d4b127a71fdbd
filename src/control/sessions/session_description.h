// The descriptions that a client gives of itself and its runs: their largest length, and the memory they take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "base/result.h"
#include "control/types/types.h"

namespace tuft::control {

inline constexpr size_t kProjectBytesMax = 256;
inline constexpr size_t kSdkVersionBytesMax = 128;
inline constexpr size_t kDisplayNameBytesMax = 1024;
inline constexpr size_t kFinishDetailBytesMax = 4 << 10;
inline constexpr size_t kIdempotencyKeyBytesMax = 256;
inline constexpr size_t kTagsMax = 64;
inline constexpr size_t kTagBytesMax = 256;
inline constexpr size_t kMetadataEntriesMax = 512;
inline constexpr size_t kMetadataBytesMax = 64 << 10;  // of all keys and values

// The limit for a checkpoint, which has its metadata in memory as long as it exists.
inline constexpr size_t kCheckpointMetadataEntriesMax = 64;
inline constexpr size_t kCheckpointMetadataBytesMax = 8 << 10;

// Each returns kInvalidArgument, which names the field and its limit, or nothing.
Status check_metadata(const std::map<std::string, std::string>& metadata);
Status check_checkpoint_metadata(const std::map<std::string, std::string>& metadata);
Status check_project(const std::string& project);
Status check_description(const CreateSession& request);
Status check_finish(const SessionFinish& finish);

// Returns the most memory that a session with this description takes, its entries in the maps and lists included. It
// does not depend on the project, which can change.
int64_t memory_of(const CreateSession& request);
// The same for metadata in a map.
size_t memory_of(const std::map<std::string, std::string>& metadata);

}  // namespace tuft::control
