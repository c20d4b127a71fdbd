#include "control/sessions/session_description.h"

#include <string_view>
#include <utility>

#include "base/utf8.h"

namespace tuft::control {
namespace {

// The memory of a session whose variable parts are empty, with the longest project id, SDK version and idempotency key.
constexpr int64_t kSessionBytes = 2048;
// The memory of a string in a vector, and of an entry of a map, without their characters.
constexpr int64_t kTagBytes = 64;
constexpr size_t kEntryBytes = 128;

Status check_count(std::string_view field, size_t count, size_t most, std::string_view unit, std::string_view reason) {
  if (count <= most) return {};
  return invalid_argument(std::string(field) + " has " + std::to_string(count) + " " + std::string(unit) +
                              ", and at most " + std::to_string(most) + " are allowed; send less",
                          std::string(reason));
}

Status check_map(const std::map<std::string, std::string>& metadata, size_t entries_max, size_t bytes_max) {
  TUFT_TRY(check_count("user_metadata", metadata.size(), entries_max, "entries", "metadata_too_large"));
  size_t bytes = 0;
  for (const auto& [key, value] : metadata) bytes += key.size() + value.size();
  return check_count("user_metadata", bytes, bytes_max, "bytes", "metadata_too_large");
}

}  // namespace

Status check_metadata(const std::map<std::string, std::string>& metadata) {
  return check_map(metadata, kMetadataEntriesMax, kMetadataBytesMax);
}

Status check_checkpoint_metadata(const std::map<std::string, std::string>& metadata) {
  return check_map(metadata, kCheckpointMetadataEntriesMax, kCheckpointMetadataBytesMax);
}

Status check_project(const std::string& project) {
  return check_count("project_id", project.size(), kProjectBytesMax, "bytes", "project_id_too_large");
}

Status check_description(const CreateSession& request) {
  TUFT_TRY(check_metadata(request.user_metadata));
  TUFT_TRY(check_project(request.project_id));
  TUFT_TRY(
      check_count("sdk_version", request.sdk_version.size(), kSdkVersionBytesMax, "bytes", "sdk_version_too_large"));
  TUFT_TRY(check_count("X-Idempotency-Key", request.idempotency_key.size(), kIdempotencyKeyBytesMax, "bytes",
                       "idempotency_key_too_large"));
  // Records are JSON: another key would not be found again after a restart.
  if (!is_utf8(request.idempotency_key)) {
    return invalid_argument("X-Idempotency-Key is not UTF-8; send ASCII, such as a UUID", "idempotency_key_not_utf8");
  }
  TUFT_TRY(check_count("display_name", request.display_name.size(), kDisplayNameBytesMax, "bytes",
                       "display_name_too_large"));
  TUFT_TRY(check_count("tags", request.tags.size(), kTagsMax, "entries", "tags_too_large"));
  for (const std::string& tag : request.tags) {
    TUFT_TRY(check_count("one of tags", tag.size(), kTagBytesMax, "bytes", "tags_too_large"));
  }
  return {};
}

Status check_finish(const SessionFinish& finish) {
  return check_count("detail", finish.detail.size(), kFinishDetailBytesMax, "bytes", "detail_too_large");
}

int64_t memory_of(const CreateSession& request) {
  int64_t bytes = kSessionBytes + static_cast<int64_t>(request.display_name.size());
  for (const std::string& tag : request.tags) bytes += kTagBytes + static_cast<int64_t>(tag.size());
  return bytes + static_cast<int64_t>(memory_of(request.user_metadata));
}

size_t memory_of(const std::map<std::string, std::string>& metadata) {
  size_t bytes = 0;
  for (const auto& [key, value] : metadata) bytes += kEntryBytes + key.size() + value.size();
  return bytes;
}

}  // namespace tuft::control
