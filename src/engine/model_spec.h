// What a Hugging Face config.json says of a dense decoder-only transformer, and nothing that we do not compute.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tuft::engine {

enum class Family : uint8_t { kLlama, kQwen2, kQwen3 };

struct RopeScaling {
  enum class Type : uint8_t { kNone, kLinear, kLlama3, kYarn };
  Type type = Type::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;   // llama3
  double high_freq_factor = 4.0;  // llama3
  int original_max_position = 0;  // llama3, yarn
  double beta_fast = 32.0;        // yarn
  double beta_slow = 1.0;         // yarn
  double attention_factor = 0.0;  // yarn; 0: 0.1 ln(factor) + 1
  bool truncate = true;           // yarn: whole-number correction range
};

struct ModelSpec {
  Family family = Family::kLlama;
  std::string architecture;  // "LlamaForCausalLM", ...
  int vocab_size = 0;
  int hidden_size = 0;
  int intermediate_size = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int max_position = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;  // Qwen2 always; Llama and Qwen3 where attention_bias says so
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // Qwen3
  std::vector<int32_t> eos_token_ids;

  int64_t parameters() const;
};

// Reads <directory>/config.json (and generation_config.json for the eos ids). What we do not compute - another
// architecture, sliding-window attention in use, another rope type, quantized weights - is refused by name with
// kUnimplemented; a malformed file is kInvalidArgument.
Result<ModelSpec> load_model_spec(const std::filesystem::path& directory);
Result<ModelSpec> parse_model_spec(std::string_view config_json, std::string_view origin);

}  // namespace tuft::engine
