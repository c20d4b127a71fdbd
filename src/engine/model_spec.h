// ModelSpec: the supported facts of a dense decoder-only transformer, from its Hugging Face config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tuft::engine {

enum class Family : uint8_t { kLlama, kQwen2, kQwen3 };

// The facts of a model family. A new family is a value of Family and a row of the table in model_spec.cc; all other
// code reads the flags of ModelSpec.
struct FamilyFacts {
  Family family;
  std::string_view name;          // option of init-model, and model_type in config.json
  std::string_view architecture;  // in config.json
  // Defaults of the configuration class in Transformers, used if a file leaves a key out.
  int default_kv_heads;  // 0: as many as heads
  int default_head_dim;  // 0: hidden_size / heads
  int default_max_position;
  double init_rope_theta;         // written by init-model
  bool always_qkv_bias;           // even if config.json has no key for it
  bool has_attention_bias;        // attention_bias in config.json, of q, k, v and o
  bool has_mlp_bias;              // mlp_bias in config.json
  bool has_sliding_window;        // use_sliding_window in config.json
  bool qk_norm;                   // RMS norm of each head of q and k
  bool hidden_multiple_of_heads;  // required by the configuration class
};
std::span<const FamilyFacts> families();
const FamilyFacts& facts_of(Family family);

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
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // RMS norm of each head of q and k
  std::vector<int32_t> eos_token_ids;

  int64_t parameters() const;
};

// Reads <directory>/config.json, and generation_config.json for the eos ids. Returns kUnimplemented that names an
// unsupported feature (another architecture, sliding-window attention in use, another rope type, quantized weights),
// and kInvalidArgument for a malformed file. `origin` names the file in messages.
Result<ModelSpec> load_model_spec(const std::filesystem::path& directory);
Result<ModelSpec> parse_model_spec(std::string_view config_json, std::string_view origin);

}  // namespace tuft::engine
