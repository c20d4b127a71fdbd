// Checkpoints on disk, in PEFT's layout so that PEFT, vLLM and Transformers load them:
//   <dir>/adapter_config.json, adapter_model.safetensors
//   (base_model.model.model.layers.N.self_attn.q_proj.lora_A.weight) <dir>/optimizer.safetensors (training checkpoints:
//   moments and step) <dir>/checkpoint_complete                              (empty; written last)
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"
#include "engine/lora.h"

namespace tuft::engine {

// Writes into a temporary directory beside it, syncs, renames. kAlreadyExists where `directory` exists.
// Returns the bytes written.
Result<int64_t> write_checkpoint(const std::filesystem::path& directory, const ModelSpec& model,
                                 const AdapterState& state, const std::string& base_model_name);

// Reads and checks everything against the model: rank, shapes, sites, dtypes, completeness. kNotFound, kDataLoss
// (torn), kInvalidArgument (made for another model, or with parts we do not compute), each saying which and what was
// expected. with_optimizer: kNotFound where the checkpoint holds no optimizer state.
Result<AdapterState> read_checkpoint(const std::filesystem::path& directory, const ModelSpec& model,
                                     bool with_optimizer);

}  // namespace tuft::engine
