// tinker://<run>/<weights|sampler_weights|external_weights>/<name>: the public name of a checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "control/types/types.h"

namespace tuft::control {

// kExternal: for download, perhaps encrypted; it is neither loaded nor sampled.
enum class CheckpointKind : uint8_t { kTraining, kSampler, kExternal };
inline constexpr size_t kCheckpointKinds = 3;
inline constexpr CheckpointKind kAllCheckpointKinds[] = {CheckpointKind::kTraining, CheckpointKind::kSampler,
                                                         CheckpointKind::kExternal};
// The checkpoints of a list: all, or those that can be loaded, without the external ones.
enum class Listed : uint8_t { kAll, kLoadable };
std::string_view checkpoint_folder(CheckpointKind kind);     // "weights", "sampler_weights", "external_weights"
std::string_view checkpoint_type_name(CheckpointKind kind);  // "training", "sampler", "external"

struct CheckpointPath {
  RunId run;
  CheckpointKind kind = CheckpointKind::kTraining;
  std::string name;

  std::string str() const;
  friend bool operator==(const CheckpointPath&, const CheckpointPath&) = default;
};

// kInvalidArgument unless the name is [A-Za-z0-9._-]{1,128} and does not begin with '.'.
Status check_checkpoint_name(std::string_view name);

// kInvalidArgument if it is not such a path. The checkpoint of a valid path need not exist.
Result<CheckpointPath> parse_checkpoint_path(std::string_view path);

// Returns the folder of a run below the checkpoint directory: the run id without ':', which some file systems refuse.
std::string run_folder(const RunId& run);

}  // namespace tuft::control
