// Checkpoints on disk, in PEFT's layout, so that PEFT, vLLM and Transformers load them:
//   adapter_config.json
//   adapter_model.safetensors  tensors such as base_model.model.model.layers.N.self_attn.q_proj.lora_A.weight
//   optimizer.safetensors      in training checkpoints: the optimizer's moments and step, and its name
//   checkpoint_complete        empty; written last
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"
#include "engine/lora.h"

namespace tuft::engine {

inline constexpr const char* kAdapterConfigFile = "adapter_config.json";
inline constexpr const char* kAdapterFile = "adapter_model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kCompleteFile = "checkpoint_complete";

// Writes into a temporary directory beside `directory`, syncs it and renames it. Returns the bytes written, or
// kAlreadyExists if `directory` exists.
Result<int64_t> write_checkpoint(const std::filesystem::path& directory, const ModelSpec& model,
                                 const AdapterState& state, const std::string& base_model_name);

// Reads a checkpoint and checks it against the model: rank, shapes, target modules, dtypes, completeness. Returns
// kNotFound, kDataLoss (damaged) or kInvalidArgument (made for another model, or with unsupported features), with what
// was found and what was expected; also kNotFound if `with_optimizer` and there is no optimizer state.
Result<AdapterState> read_checkpoint(const std::filesystem::path& directory, const ModelSpec& model,
                                     bool with_optimizer);

}  // namespace tuft::engine
