#include "engine/model_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/file.h"
#include "engine/json_fields.h"

namespace tuft::engine {
namespace {

constexpr size_t kConfigBytesMax = 16 << 20;
constexpr int64_t kWidthMax = 1 << 20;  // larger than any dense model; keeps the product of two widths within 64 bits
constexpr int64_t kLayersMax = 4096;
constexpr int64_t kPositionMax = 1 << 30;

constexpr auto kFamilies = std::to_array<FamilyFacts>({
    {.family = Family::kLlama,
     .name = "llama",
     .architecture = "LlamaForCausalLM",
     .default_kv_heads = 0,
     .default_head_dim = 0,
     .default_max_position = 2048,
     .init_rope_theta = 1e4,
     .always_qkv_bias = false,
     .has_attention_bias = true,
     .has_mlp_bias = true,
     .has_sliding_window = false,
     .qk_norm = false,
     .hidden_multiple_of_heads = true},
    {.family = Family::kQwen2,
     .name = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .default_kv_heads = 32,
     .default_head_dim = 0,
     .default_max_position = 32768,
     .init_rope_theta = 1e6,
     .always_qkv_bias = true,
     .has_attention_bias = false,
     .has_mlp_bias = false,
     .has_sliding_window = true,
     .qk_norm = false,
     .hidden_multiple_of_heads = false},
    {.family = Family::kQwen3,
     .name = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .default_kv_heads = 32,
     .default_head_dim = 128,
     .default_max_position = 32768,
     .init_rope_theta = 1e6,
     .always_qkv_bias = false,
     .has_attention_bias = true,
     .has_mlp_bias = false,
     .has_sliding_window = true,
     .qk_norm = true,
     .hidden_multiple_of_heads = false},
});

Error unimplemented(const std::string& message, const char* reason) {
  return {ErrorCode::kUnimplemented, message, reason};
}

Result<const FamilyFacts*> find_family(JsonFields& config) {
  const std::vector<std::string> architectures = config.texts("architectures");
  TUFT_TRY(config.status());
  std::string known;
  for (const FamilyFacts& facts : kFamilies) {
    if (architectures.size() == 1 && architectures[0] == facts.architecture) return &facts;
    known += (known.empty() ? "" : ", ") + std::string(facts.architecture);
  }
  if (architectures.empty()) {
    return invalid_argument(config.origin() + ": architectures is missing; it must hold one of " + known, "bad_json");
  }
  return unimplemented(
      config.origin() + ": architecture '" + architectures[0] + "' is not supported; supported are " + known,
      "unknown_architecture");
}

// Refuses features that would change the results and are not supported.
Status refuse_unknown_features(const Json& object, JsonFields& config, const FamilyFacts& facts) {
  const auto refuse = [&](const std::string& what) {
    return unimplemented(config.origin() + ": " + what, "unsupported_model");
  };
  if (config.has("quantization_config")) {
    return refuse("quantization_config: quantized weights are not supported; use the float32 or bfloat16 model");
  }
  const std::string activation = config.text("hidden_act", "silu");
  if (activation != "silu") return refuse("hidden_act '" + activation + "' is not supported; only 'silu' is");
  if (config.boolean("use_sliding_window", false)) {
    return refuse("use_sliding_window is true; sliding-window attention is not supported");
  }
  for (const std::string& type : config.texts("layer_types")) {
    if (type != "full_attention") {
      return refuse("layer_types holds '" + type + "'; only 'full_attention' is supported");
    }
  }
  if (!facts.has_mlp_bias && config.boolean("mlp_bias", false)) {
    return refuse("mlp_bias is true; it is not supported for this family");
  }
  if (config.number("partial_rotary_factor", 1.0, 0.0, 1.0) != 1.0) {
    return refuse("partial_rotary_factor other than 1 is not supported");
  }
  const char* dtype_key = config.has("dtype") ? "dtype" : "torch_dtype";
  const std::string dtype = config.text(dtype_key, "float32");
  constexpr std::array kDtypes = {"float32", "bfloat16", "float16", "auto"};
  if (std::find(kDtypes.begin(), kDtypes.end(), dtype) == kDtypes.end()) {
    return refuse(std::string(dtype_key) + " '" + dtype + "' is not supported; float32, bfloat16 and float16 are");
  }
  for (const auto& [key, value] : object.items()) {
    if (key.starts_with("num_experts") || key == "num_local_experts") {
      return refuse(key + ": mixture-of-experts layers are not supported");
    }
  }
  return config.status();
}

double yarn_magnitude(double factor, double scale) {
  return factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

void parse_yarn(JsonFields& rope, RopeScaling& out) {
  out.beta_fast = rope.number("beta_fast", 32.0, 1e-6, 1e9);
  out.beta_slow = rope.number("beta_slow", 1.0, 1e-6, 1e9);
  out.attention_factor = rope.number("attention_factor", 0.0, 0.0, 1e6);
  out.truncate = rope.boolean("truncate", true);
  const double scale = rope.number("mscale", 0.0, 0.0, 1e6);
  const double scale_all = rope.number("mscale_all_dim", 0.0, 0.0, 1e6);
  if (!rope.has("attention_factor") && scale > 0 && scale_all > 0) {
    out.attention_factor = yarn_magnitude(out.factor, scale) / yarn_magnitude(out.factor, scale_all);
  }
}

Status parse_rope_type(JsonFields& config, JsonFields& rope, int max_position, RopeScaling& out) {
  const std::string type = rope.text(rope.has("rope_type") ? "rope_type" : "type", "default");
  TUFT_TRY(rope.status());
  if (type == "default") return {};
  constexpr std::pair<const char*, RopeScaling::Type> kTypes[] = {{"linear", RopeScaling::Type::kLinear},
                                                                  {"llama3", RopeScaling::Type::kLlama3},
                                                                  {"yarn", RopeScaling::Type::kYarn}};
  for (const auto& [name, value] : kTypes) {
    if (type == name) out.type = value;
  }
  if (out.type == RopeScaling::Type::kNone) {
    return unimplemented(
        rope.origin() + ": rope type '" + type + "' is not supported; default, linear, llama3 and yarn are",
        "unsupported_model");
  }
  if (out.type != RopeScaling::Type::kLinear) {
    const int64_t fallback = config.integer("original_max_position_embeddings", max_position, 1, kPositionMax);
    out.original_max_position =
        static_cast<int>(rope.integer("original_max_position_embeddings", fallback, 1, kPositionMax));
  }
  if (out.type == RopeScaling::Type::kYarn && !rope.has("factor")) {
    out.factor = static_cast<double>(max_position) / out.original_max_position;
  } else {
    out.factor = rope.number("factor", std::nullopt, 1e-3, 1e6);
  }
  if (out.type == RopeScaling::Type::kLlama3) {
    out.low_freq_factor = rope.number("low_freq_factor", std::nullopt, 1e-6, 1e9);
    out.high_freq_factor = rope.number("high_freq_factor", std::nullopt, 1e-6, 1e9);
    if (out.high_freq_factor <= out.low_freq_factor) rope.fail("high_freq_factor must be above low_freq_factor");
  }
  if (out.type == RopeScaling::Type::kYarn) parse_yarn(rope, out);
  return rope.status();
}

// Reads rope_scaling and rope_theta of Transformers up to 4, or rope_parameters of Transformers 5 and later.
Status parse_rope(const Json& object, JsonFields& config, ModelSpec& spec) {
  const Json empty = Json::object();
  const auto section = [&](const char* key) -> const Json& { return config.has(key) ? object[key] : empty; };
  const Json& scaling = section("rope_scaling");
  const Json& parameters = section("rope_parameters");
  if (!scaling.is_object() || !parameters.is_object()) {
    config.fail(std::string(scaling.is_object() ? "rope_parameters" : "rope_scaling") + " must be an object");
    return config.status();
  }
  const bool classic = !scaling.empty();
  JsonFields rope(classic ? scaling : parameters, config.origin() + (classic ? " rope_scaling" : " rope_parameters"));
  JsonFields theta(parameters, config.origin() + " rope_parameters");
  for (const char* nested : {"full_attention", "sliding_attention"}) {
    if (rope.has(nested)) {
      return unimplemented(rope.origin() + ": rope parameters per layer type are not supported", "unsupported_model");
    }
  }
  if (rope.number("partial_rotary_factor", 1.0, 0.0, 1.0) != 1.0) {
    return unimplemented(rope.origin() + ": partial_rotary_factor other than 1 is not supported", "unsupported_model");
  }
  const double top = config.number("rope_theta", 10000.0, 1.0, 1e12);
  spec.rope_theta = rope.number("rope_theta", theta.number("rope_theta", top, 1.0, 1e12), 1.0, 1e12);
  TUFT_TRY(theta.status());
  TUFT_TRY(config.status());
  return parse_rope_type(config, rope, spec.max_position, spec.rope_scaling);
}

void parse_shape(JsonFields& config, const FamilyFacts& facts, ModelSpec& spec) {
  const auto width = [&](const char* key) { return static_cast<int>(config.integer(key, std::nullopt, 1, kWidthMax)); };
  spec.vocab_size = static_cast<int>(config.integer("vocab_size", std::nullopt, 1, 1 << 24));
  spec.hidden_size = width("hidden_size");
  spec.intermediate_size = width("intermediate_size");
  spec.layers = static_cast<int>(config.integer("num_hidden_layers", std::nullopt, 1, kLayersMax));
  spec.heads = width("num_attention_heads");
  const int kv_heads = facts.default_kv_heads > 0 ? facts.default_kv_heads : spec.heads;
  spec.kv_heads = static_cast<int>(config.integer("num_key_value_heads", kv_heads, 1, kWidthMax));
  const int head_dim = facts.default_head_dim > 0 ? facts.default_head_dim : spec.hidden_size / spec.heads;
  spec.head_dim = static_cast<int>(config.integer("head_dim", head_dim, 1, 1 << 14));
  spec.max_position =
      static_cast<int>(config.integer("max_position_embeddings", facts.default_max_position, 1, kPositionMax));
  spec.rms_norm_eps = config.number("rms_norm_eps", 1e-6, 0.0, 1.0);
  if (!config.status().ok()) return;
  if (facts.default_head_dim == 0 && !config.has("head_dim") && spec.hidden_size % spec.heads != 0) {
    config.fail("hidden_size is not a multiple of num_attention_heads; give head_dim");
  }
  if (spec.heads % spec.kv_heads != 0) config.fail("num_attention_heads is not a multiple of num_key_value_heads");
  if (spec.head_dim % 2 != 0) config.fail("head_dim must be even");
  if (int64_t{spec.heads} * spec.head_dim > kWidthMax) config.fail("num_attention_heads * head_dim is too large");
}

Status read_generation_config(const std::filesystem::path& directory, ModelSpec& spec) {
  const std::filesystem::path path = directory / "generation_config.json";
  auto text = read_file(path, kConfigBytesMax);
  if (!text.ok() && text.error().code == ErrorCode::kNotFound) return {};
  TUFT_TRY(text);
  TUFT_ASSIGN(const Json object, parse_json_object(*text, path.string()));
  JsonFields config(object, path.string());
  std::vector<int32_t> ids = config.integers("eos_token_id", 0, spec.vocab_size - 1);
  TUFT_TRY(config.status());
  if (!ids.empty()) spec.eos_token_ids = std::move(ids);
  return {};
}

}  // namespace

std::span<const FamilyFacts> families() {
  return kFamilies;
}

const FamilyFacts& facts_of(Family family) {
  return *std::find_if(kFamilies.begin(), kFamilies.end(), [&](const auto& facts) { return facts.family == family; });
}

int64_t ModelSpec::parameters() const {
  const int64_t hidden = hidden_size;
  const int64_t query = int64_t{heads} * head_dim;
  const int64_t key_value = int64_t{kv_heads} * head_dim;
  int64_t block = hidden * (2 * query + 2 * key_value + 3 * int64_t{intermediate_size}) + 2 * hidden;
  if (qkv_bias) block += query + 2 * key_value;
  if (o_bias) block += hidden;
  if (mlp_bias) block += 2 * int64_t{intermediate_size} + hidden;
  if (qk_norm) block += 2 * int64_t{head_dim};
  const int64_t embedding = int64_t{vocab_size} * hidden;
  return layers * block + hidden + embedding * (tie_word_embeddings ? 1 : 2);
}

Result<ModelSpec> parse_model_spec(std::string_view config_json, std::string_view origin) {
  TUFT_ASSIGN(const Json object, parse_json_object(config_json, origin));
  JsonFields config(object, std::string(origin));
  TUFT_ASSIGN(const FamilyFacts* facts, find_family(config));
  TUFT_TRY(refuse_unknown_features(object, config, *facts));

  ModelSpec spec;
  spec.family = facts->family;
  spec.architecture = facts->architecture;
  parse_shape(config, *facts, spec);
  TUFT_TRY(config.status());
  TUFT_TRY(parse_rope(object, config, spec));
  spec.tie_word_embeddings = config.boolean("tie_word_embeddings", false);
  const bool attention_bias = config.boolean("attention_bias", false);
  spec.qkv_bias = facts->always_qkv_bias || attention_bias;
  spec.o_bias = facts->has_attention_bias && attention_bias;
  spec.mlp_bias = config.boolean("mlp_bias", false);
  spec.qk_norm = facts->qk_norm;
  spec.eos_token_ids = config.integers("eos_token_id", 0, spec.vocab_size - 1);
  TUFT_TRY(config.status());
  return spec;
}

Result<ModelSpec> load_model_spec(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "config.json";
  TUFT_ASSIGN(const std::string text, read_file(path, kConfigBytesMax));
  TUFT_ASSIGN(ModelSpec spec, parse_model_spec(text, path.string()));
  TUFT_TRY(read_generation_config(directory, spec));
  return spec;
}

}  // namespace tuft::engine
