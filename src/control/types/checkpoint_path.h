// tinker://<run>/<weights|sampler_weights>/<name>: the public name of a checkpoint.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "control/types/types.h"

namespace tuft::control {

enum class CheckpointKind : uint8_t { kTraining, kSampler };
std::string_view checkpoint_folder(CheckpointKind kind);     // "weights", "sampler_weights"
std::string_view checkpoint_type_name(CheckpointKind kind);  // "training", "sampler"

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
