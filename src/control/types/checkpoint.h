// The facts about a checkpoint, and its metadata.json.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "control/types/checkpoint_path.h"
#include "control/types/types.h"

namespace tuft::control {

class CheckpointFiles;

struct Checkpoint {
  CheckpointPath path;
  UserId owner;
  SessionId session;
  std::string base_model;
  std::string created_at;                            // ISO 8601 with offset
  std::string project_id;                            // of its session, when it was saved
  std::map<std::string, std::string> user_metadata;  // of its run
  std::map<std::string, std::string> own_metadata;   // what its client said when it was saved
  int lora_rank = 0;
  double lora_alpha = 0;
  bool train_attn = true;
  bool train_mlp = true;
  bool train_unembed = true;
  std::vector<std::string> target_modules;
  Optimizer optimizer = Optimizer::kAdamW;  // of its run
  int64_t size_bytes = 0;
  bool is_public = false;
  bool encrypted = false;           // kExternal: its files are age files
  bool ephemeral = false;           // made by an unnamed sampler save; goes with its sampler
  bool servers_save = false;        // made by the server by itself (training/worker_drain.h), not by its client
  std::optional<Nanos> expires_at;  // wall clock; none: it stays
  uint64_t future_number = 0;
  std::optional<int64_t> seq_id;
  std::shared_ptr<const CheckpointFiles> files;  // not in the file; null while it is being made
};
using CheckpointPtr = std::shared_ptr<const Checkpoint>;

// The use of a user's quotas by checkpoints: bytes on disk, and a count that bounds memory and directories.
struct CheckpointUse {
  int64_t bytes = 0;
  int64_t count = 0;
};
// A checkpoint counts once, and once more for each 4 KiB of memory that its metadata takes.
CheckpointUse use_of(const Checkpoint& checkpoint);

inline constexpr std::string_view kMetadataFile = "metadata.json";
inline constexpr int kMetadataVersion = 1;
// The file that PEFT reads.
inline constexpr const char* kAdapterConfigFile = "adapter_config.json";
inline constexpr const char* kAdapterModelFile = "adapter_model.safetensors";
// The names of the files of an external checkpoint, before they are encrypted.
inline std::vector<std::string> external_files() {
  return {kAdapterConfigFile, kAdapterModelFile};
}

std::string to_metadata_json(const Checkpoint& checkpoint);
// kDataLoss if the text is not such metadata, or of a later version.
Result<Checkpoint> from_metadata_json(std::string_view json);

// Returns "2026-01-31T12:00:00.000000+00:00"; parse_iso_time() returns nothing for any other form.
std::string iso_time(Nanos wall);
std::optional<Nanos> parse_iso_time(std::string_view text);
// Returns the time `seconds` > 0 after `wall`, or the year 2255 if that is later.
Nanos expiry_after(Nanos wall, int64_t seconds);

}  // namespace tuft::control
