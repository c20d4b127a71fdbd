// `tuft init-model`: writes a small, randomly initialised Hugging Face model directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"
#include "engine/model_spec.h"
#include "engine/weights/safetensors.h"

namespace tuft::engine {

struct InitModelOptions {
  Family family = Family::kQwen3;
  int hidden_size = 256;
  int intermediate_size = 768;
  int layers = 4;
  int heads = 8;
  int kv_heads = 4;
  int head_dim = 32;
  int max_position = 2048;
  bool tie_word_embeddings = true;
  Dtype dtype = Dtype::kFloat32;  // or kBfloat16
  uint64_t seed = 0;
};

// Writes config.json, generation_config.json, model.safetensors, tokenizer.json and tokenizer_config.json. The
// tokenizer is byte-level (256 byte tokens and <|endoftext|>, <|im_start|>, <|im_end|>, <|pad|>), and AutoTokenizer
// loads it. Atomic. Returns kAlreadyExists if the directory exists.
Status init_model(const std::filesystem::path& directory, const InitModelOptions& options);

}  // namespace tuft::engine
