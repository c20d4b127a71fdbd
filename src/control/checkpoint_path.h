// tinker://<run>/<weights|sampler_weights>/<name>: the public name of a checkpoint.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "control/types.h"

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

// [A-Za-z0-9._-]{1,128}, not starting with '.': neither ".", "..", nor a name that the server keeps for itself.
Status check_checkpoint_name(std::string_view name);

// kInvalidArgument where it is no such path. A valid one need not exist.
Result<CheckpointPath> parse_checkpoint_path(std::string_view path);

// The folder of a run below the checkpoint directory. Run ids hold ':', which some tools and file systems refuse.
std::string run_folder(const RunId& run);

}  // namespace tuft::control
