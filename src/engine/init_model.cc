#include "engine/init_model.h"

#include <cmath>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "base/file.h"
#include "engine/json_fields.h"
#include "engine/new_directory.h"
#include "engine/weights/float_convert.h"
#include "tokenizer/byte_level.h"

namespace tuft::engine {
namespace {

constexpr int64_t kParametersMax = 1'000'000'000;
constexpr double kInitializerRange = 0.02;
constexpr double kEmbeddingDeviation = 0.1;

constexpr int kByteTokens = 256;
constexpr const char* kSpecialTokens[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"};
constexpr int kEndOfText = kByteTokens;
constexpr int kTurnEnd = kByteTokens + 2;
constexpr int kPad = kByteTokens + 3;
constexpr int kVocabulary = kByteTokens + 4;

constexpr const char* kChatTemplate =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

Json make_config(const InitModelOptions& options) {
  const FamilyFacts& facts = facts_of(options.family);
  Json config = {{"architectures", {facts.architecture}},
                 {"model_type", facts.name},
                 {"vocab_size", kVocabulary},
                 {"hidden_size", options.hidden_size},
                 {"intermediate_size", options.intermediate_size},
                 {"num_hidden_layers", options.layers},
                 {"num_attention_heads", options.heads},
                 {"num_key_value_heads", options.kv_heads},
                 {"head_dim", options.head_dim},
                 {"hidden_act", "silu"},
                 {"max_position_embeddings", options.max_position},
                 {"initializer_range", kInitializerRange},
                 {"rms_norm_eps", 1e-6},
                 {"rope_theta", facts.init_rope_theta},
                 {"tie_word_embeddings", options.tie_word_embeddings},
                 {"attention_dropout", 0.0},
                 {"torch_dtype", options.dtype == Dtype::kBfloat16 ? "bfloat16" : "float32"},
                 {"use_cache", true},
                 {"bos_token_id", nullptr},
                 {"eos_token_id", kTurnEnd},
                 {"pad_token_id", kPad}};
  if (facts.has_attention_bias) config["attention_bias"] = false;
  if (facts.has_mlp_bias) config["mlp_bias"] = false;
  if (facts.has_sliding_window) config["use_sliding_window"] = false;
  return config;
}

// parse_model_spec() checks the options in the configuration that they produce.
Result<ModelSpec> check_options(const InitModelOptions& options, const Json& config) {
  TUFT_ASSIGN(ModelSpec spec, parse_model_spec(config.dump(), "init-model"));
  if (options.dtype != Dtype::kFloat32 && options.dtype != Dtype::kBfloat16) {
    return invalid_argument("init-model: dtype must be float32 or bfloat16", "bad_option");
  }
  const FamilyFacts& facts = facts_of(options.family);
  if (facts.hidden_multiple_of_heads && options.hidden_size % options.heads != 0) {
    return invalid_argument(
        "init-model: hidden_size must be a multiple of heads in the family " + std::string(facts.name), "bad_option");
  }
  if (spec.parameters() > kParametersMax) {
    return invalid_argument("init-model: the model would have " + std::to_string(spec.parameters()) +
                                " parameters; the maximum is " + std::to_string(kParametersMax),
                            "bad_option");
  }
  return spec;
}

// SplitMix64 (Steele, Lea and Flood 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  // Approximates a standard normal by four uniforms, in integers, so that the bits are equal everywhere.
  float normal() {
    const uint64_t bits = next();
    const int64_t sum =
        static_cast<int64_t>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48));
    constexpr double kScale = 1.7320508075688772 / 65536;  // the variance of the sum is 65536^2 / 3
    return static_cast<float>(static_cast<double>(sum - 2 * 0xFFFF) * kScale);
  }

 private:
  uint64_t next() {
    uint64_t value = state_ += 0x9E3779B97F4A7C15ULL;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
    return value ^ (value >> 31);
  }
  uint64_t state_;
};

// Collects every tensor of the model in the order in which random numbers are drawn.
class Weights {
 public:
  Weights(Dtype dtype, uint64_t seed) : dtype_(dtype), random_(seed) {}

  void add_random(const std::string& name, std::vector<int64_t> shape, double deviation) {
    add(name, std::move(shape), [&] { return random_.normal() * static_cast<float>(deviation); });
  }
  // [out, in] with a deviation of 1 / sqrt(in), which keeps the variance of activations. The usual 0.02 suits models
  // that are trained whole; with it a frozen base passes too little signal for an adapter to learn.
  void add_linear(const std::string& name, int64_t out, int64_t in) {
    add_random(name, {out, in}, 1.0 / std::sqrt(static_cast<double>(in)));
  }
  void add_constant(const std::string& name, int64_t size, float value) {
    add(name, {size}, [&] { return value; });
  }
  const std::vector<NamedTensor>& tensors() const { return tensors_; }

 private:
  template <typename Next>
  void add(const std::string& name, std::vector<int64_t> shape, Next next) {
    size_t count = 1;
    for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
    std::vector<std::byte>& bytes = storage_.emplace_back(count * dtype_size(dtype_));
    for (size_t i = 0; i < count; ++i) {
      const float value = next();
      if (dtype_ == Dtype::kFloat32) {
        std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
      } else {
        const uint16_t half = float_to_bfloat16(value);
        std::memcpy(bytes.data() + i * sizeof half, &half, sizeof half);
      }
    }
    tensors_.push_back({name, dtype_, std::move(shape), bytes});
  }

  const Dtype dtype_;
  Random random_;
  std::deque<std::vector<std::byte>> storage_;  // does not move what tensors_ borrows
  std::vector<NamedTensor> tensors_;
};

void add_block(const ModelSpec& spec, int layer, Weights& out) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const int64_t hidden = spec.hidden_size;
  const int64_t query = int64_t{spec.heads} * spec.head_dim;
  const int64_t key_value = int64_t{spec.kv_heads} * spec.head_dim;
  out.add_constant(prefix + "input_layernorm.weight", hidden, 1.0F);
  out.add_linear(prefix + "self_attn.q_proj.weight", query, hidden);
  out.add_linear(prefix + "self_attn.k_proj.weight", key_value, hidden);
  out.add_linear(prefix + "self_attn.v_proj.weight", key_value, hidden);
  out.add_linear(prefix + "self_attn.o_proj.weight", hidden, query);
  if (spec.qkv_bias) {
    out.add_constant(prefix + "self_attn.q_proj.bias", query, 0.0F);
    out.add_constant(prefix + "self_attn.k_proj.bias", key_value, 0.0F);
    out.add_constant(prefix + "self_attn.v_proj.bias", key_value, 0.0F);
  }
  if (spec.qk_norm) {
    out.add_constant(prefix + "self_attn.q_norm.weight", spec.head_dim, 1.0F);
    out.add_constant(prefix + "self_attn.k_norm.weight", spec.head_dim, 1.0F);
  }
  out.add_constant(prefix + "post_attention_layernorm.weight", hidden, 1.0F);
  out.add_linear(prefix + "mlp.gate_proj.weight", spec.intermediate_size, hidden);
  out.add_linear(prefix + "mlp.up_proj.weight", spec.intermediate_size, hidden);
  out.add_linear(prefix + "mlp.down_proj.weight", hidden, spec.intermediate_size);
}

Status write_weights(const std::filesystem::path& file, const ModelSpec& spec, const InitModelOptions& options) {
  Weights weights(options.dtype, options.seed);
  weights.add_random("model.embed_tokens.weight", {spec.vocab_size, spec.hidden_size}, kEmbeddingDeviation);
  for (int layer = 0; layer < spec.layers; ++layer) add_block(spec, layer, weights);
  weights.add_constant("model.norm.weight", spec.hidden_size, 1.0F);
  if (!spec.tie_word_embeddings) weights.add_linear("lm_head.weight", spec.vocab_size, spec.hidden_size);
  return write_safetensors(file, weights.tensors(), {{"format", "pt"}});
}

Json make_tokenizer() {
  Json vocabulary = Json::object();
  for (int byte = 0; byte < kByteTokens; ++byte) {
    vocabulary[tokenizer::byte_to_utf8(static_cast<uint8_t>(byte))] = byte;
  }
  Json added = Json::array();
  for (const char* token : kSpecialTokens) {
    added.push_back({{"id", kByteTokens + static_cast<int>(added.size())},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocabulary},
            {"merges", Json::array()}}}};
}

Json make_tokenizer_config(const InitModelOptions& options) {
  return {{"tokenizer_class", "PreTrainedTokenizerFast"},    {"eos_token", kSpecialTokens[kTurnEnd - kByteTokens]},
          {"pad_token", kSpecialTokens[kPad - kByteTokens]}, {"model_max_length", options.max_position},
          {"clean_up_tokenization_spaces", false},           {"chat_template", kChatTemplate}};
}

Status write_json(const std::filesystem::path& file, const Json& json) {
  return write_file_atomically(file, json.dump(2) + "\n");
}

}  // namespace

Status init_model(const std::filesystem::path& directory, const InitModelOptions& options) {
  const Json config = make_config(options);
  TUFT_ASSIGN(const ModelSpec spec, check_options(options, config));
  TUFT_ASSIGN(NewDirectory target, NewDirectory::create(directory));
  const Json generation = {{"eos_token_id", {kTurnEnd, kEndOfText}}, {"pad_token_id", kPad}, {"do_sample", true}};
  TUFT_TRY(write_json(target.path() / "config.json", config));
  TUFT_TRY(write_json(target.path() / "generation_config.json", generation));
  TUFT_TRY(write_json(target.path() / "tokenizer.json", make_tokenizer()));
  TUFT_TRY(write_json(target.path() / "tokenizer_config.json", make_tokenizer_config(options)));
  TUFT_TRY(write_weights(target.path() / "model.safetensors", spec, options));
  return target.commit();
}

}  // namespace tuft::engine
