// Names and shapes inside a checkpoint. Internal to checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/lora.h"

namespace tuft::engine {

// The metadata `format` of optimizer.safetensors: "tuft.adam.v1" or "tuft.dimuon.v1".
std::string optimizer_format(Optimizer optimizer);
// Returns nothing for a format that is neither.
std::optional<Optimizer> optimizer_of_format(std::string_view format);
// The prefixes of the names of the moments in that file; that of `second` is empty if the optimizer has none.
struct MomentPrefixes {
  std::string first;
  std::string second;
};
MomentPrefixes moment_prefixes(Optimizer optimizer);

// Returns PEFT's name of the module, such as "base_model.model.model.layers.3.self_attn.q_proj".
std::string module_name(TargetModule module, int layer);

std::vector<int64_t> shape_of_a(const LoraSpec& spec, const LoraLayer& place);
std::vector<int64_t> shape_of_b(const LoraSpec& spec, const LoraLayer& place);

// Returns kInvalidArgument unless `tensors` are those of spec and model, in order and with their sizes.
Status check_tensors(const ModelSpec& model, const LoraSpec& spec, const std::vector<LoraTensor>& tensors,
                     const std::string& what);

// Removes the path from a message, because clients must not see the server's paths.
Error without_path(Error error, const std::filesystem::path& path);

}  // namespace tuft::engine
