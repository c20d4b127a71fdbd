#include "engine/model_spec.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/testing/temp_dir.h"

namespace tuft::engine {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json tiny_config(const std::string& architecture) {
  return {{"architectures", {architecture}},
          {"vocab_size", 100},
          {"hidden_size", 32},
          {"intermediate_size", 48},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 8},
          {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 500000.0},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", true},
          {"eos_token_id", {7, 9}},
          {"torch_dtype", "bfloat16"}};
}

Result<ModelSpec> parse(const json& config) {
  return parse_model_spec(config.dump(), "config.json");
}

json with(json config, const std::string& key, const json& value) {
  config[key] = value;
  return config;
}

TEST(ModelSpec, LlamaConfigThenEveryFieldIsRead) {
  const auto spec = parse(tiny_config("LlamaForCausalLM"));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->family, Family::kLlama);
  EXPECT_EQ(spec->vocab_size, 100);
  EXPECT_EQ(spec->hidden_size, 32);
  EXPECT_EQ(spec->intermediate_size, 48);
  EXPECT_EQ(spec->layers, 2);
  EXPECT_EQ(spec->heads, 4);
  EXPECT_EQ(spec->kv_heads, 2);
  EXPECT_EQ(spec->head_dim, 8);
  EXPECT_EQ(spec->max_position, 64);
  EXPECT_DOUBLE_EQ(spec->rms_norm_eps, 1e-5);
  EXPECT_DOUBLE_EQ(spec->rope_theta, 500000.0);
  EXPECT_TRUE(spec->tie_word_embeddings);
  EXPECT_FALSE(spec->qkv_bias || spec->o_bias || spec->mlp_bias || spec->qk_norm);
  EXPECT_THAT(spec->eos_token_ids, ElementsAre(7, 9));
}

TEST(ModelSpec, FamiliesThenBiasAndNormFollowThem) {
  const auto qwen2 = parse(with(tiny_config("Qwen2ForCausalLM"), "attention_bias", nullptr));
  ASSERT_TRUE(qwen2.ok());
  EXPECT_TRUE(qwen2->qkv_bias);
  EXPECT_FALSE(qwen2->o_bias);
  EXPECT_FALSE(qwen2->qk_norm);
  const auto qwen3 = parse(with(tiny_config("Qwen3ForCausalLM"), "attention_bias", true));
  ASSERT_TRUE(qwen3.ok());
  EXPECT_TRUE(qwen3->qkv_bias && qwen3->o_bias && qwen3->qk_norm);
  const auto llama = parse(with(tiny_config("LlamaForCausalLM"), "mlp_bias", true));
  ASSERT_TRUE(llama.ok());
  EXPECT_TRUE(llama->mlp_bias);
}

TEST(ModelSpec, KeysLeftOutThenTheFamilysDefaults) {
  json config = tiny_config("LlamaForCausalLM");
  config.erase("head_dim");
  config.erase("num_key_value_heads");
  config.erase("rope_theta");
  config.erase("eos_token_id");
  const auto llama = parse(config);
  ASSERT_TRUE(llama.ok());
  EXPECT_EQ(llama->head_dim, 8);
  EXPECT_EQ(llama->kv_heads, 4);
  EXPECT_DOUBLE_EQ(llama->rope_theta, 10000.0);
  EXPECT_TRUE(llama->eos_token_ids.empty());
  config["architectures"] = {"Qwen3ForCausalLM"};
  config["num_key_value_heads"] = 2;
  const auto qwen3 = parse(config);
  ASSERT_TRUE(qwen3.ok());
  EXPECT_EQ(qwen3->head_dim, 128);
}

TEST(ModelSpec, ParametersThenTheyAreCounted) {
  const auto spec = parse(tiny_config("Qwen2ForCausalLM"));
  ASSERT_TRUE(spec.ok());
  // A block: q 32*32+32, k and v 32*16+16 each, o 32*32, mlp 3*32*48, norms 64. Also: final norm, embedding.
  EXPECT_EQ(spec->parameters(), 2 * (1056 + 2 * 528 + 1024 + 4608 + 64) + 32 + 3200);
}

TEST(ModelSpec, RopeScalingThenEachFormIsRead) {
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 32}};
  auto spec = parse(with(tiny_config("LlamaForCausalLM"), "rope_scaling", llama3));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->rope_scaling.type, RopeScaling::Type::kLlama3);
  EXPECT_DOUBLE_EQ(spec->rope_scaling.factor, 8.0);
  EXPECT_DOUBLE_EQ(spec->rope_scaling.high_freq_factor, 4.0);
  EXPECT_EQ(spec->rope_scaling.original_max_position, 32);

  spec = parse(with(tiny_config("LlamaForCausalLM"), "rope_scaling", {{"type", "linear"}, {"factor", 2}}));
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->rope_scaling.type, RopeScaling::Type::kLinear);
  EXPECT_DOUBLE_EQ(spec->rope_theta, 500000.0);

  json newer = tiny_config("Qwen3ForCausalLM");
  newer.erase("rope_theta");
  newer["rope_parameters"] = {{"rope_type", "yarn"},
                              {"rope_theta", 1e6},
                              {"factor", 4.0},
                              {"truncate", false},
                              {"original_max_position_embeddings", 16},
                              {"beta_fast", 16}};
  spec = parse(newer);
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->rope_scaling.type, RopeScaling::Type::kYarn);
  EXPECT_DOUBLE_EQ(spec->rope_theta, 1e6);
  EXPECT_DOUBLE_EQ(spec->rope_scaling.beta_fast, 16.0);
  EXPECT_DOUBLE_EQ(spec->rope_scaling.attention_factor, 0.0);
  EXPECT_FALSE(spec->rope_scaling.truncate);

  newer["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5000}};
  spec = parse(newer);
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->rope_scaling.type, RopeScaling::Type::kNone);
  EXPECT_DOUBLE_EQ(spec->rope_theta, 5000.0);
}

TEST(ModelSpec, YarnWithoutSomeKeysThenTheyFollowFromOthers) {
  const json yarn = {
      {"rope_type", "yarn"}, {"original_max_position_embeddings", 16}, {"mscale", 1.0}, {"mscale_all_dim", 0.5}};
  const auto spec = parse(with(tiny_config("LlamaForCausalLM"), "rope_scaling", yarn));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_DOUBLE_EQ(spec->rope_scaling.factor, 4.0);
  EXPECT_NEAR(spec->rope_scaling.attention_factor, (0.1 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1), 1e-12);
}

struct Refusal {
  const char* key;
  json value;
  ErrorCode code;
  const char* message;
};

class ModelSpecRefusal : public ::testing::TestWithParam<Refusal> {};

TEST_P(ModelSpecRefusal, UnsupportedFeatureIsNamed) {
  const auto spec = parse(with(tiny_config("Qwen3ForCausalLM"), GetParam().key, GetParam().value));
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.error().code, GetParam().code) << spec.error().message;
  EXPECT_THAT(spec.error().message, HasSubstr("config.json"));
  EXPECT_THAT(spec.error().message, HasSubstr(GetParam().message));
}

constexpr ErrorCode kNo = ErrorCode::kUnimplemented;
constexpr ErrorCode kBad = ErrorCode::kInvalidArgument;

INSTANTIATE_TEST_SUITE_P(
    Table, ModelSpecRefusal,
    ::testing::Values(
        Refusal{"architectures", json::array({"MixtralForCausalLM"}), kNo, "MixtralForCausalLM"},
        Refusal{"architectures", json::array(), kBad, "architectures is missing"},
        Refusal{"architectures", "Qwen3ForCausalLM", kBad, "list of strings"},
        Refusal{"use_sliding_window", true, kNo, "sliding-window"},
        Refusal{"layer_types", json::array({"full_attention", "sliding_attention"}), kNo, "sliding_attention"},
        Refusal{"quantization_config", {{"quant_method", "gptq"}}, kNo, "quantized"},
        Refusal{"hidden_act", "gelu", kNo, "gelu"}, Refusal{"mlp_bias", true, kNo, "mlp_bias"},
        Refusal{"partial_rotary_factor", 0.5, kNo, "partial_rotary_factor"},
        Refusal{"num_experts", 8, kNo, "num_experts"}, Refusal{"torch_dtype", "float8_e4m3fn", kNo, "float8_e4m3fn"},
        Refusal{"dtype", "int8", kNo, "int8"},
        Refusal{"rope_scaling", {{"rope_type", "longrope"}, {"factor", 2}}, kNo, "longrope"},
        Refusal{"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}, kNo, "dynamic"},
        Refusal{"rope_scaling", {{"type", "linear"}}, kBad, "factor is missing"},
        Refusal{"rope_scaling", 3, kBad, "rope_scaling must be an object"},
        Refusal{"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}, kNo, "per layer type"},
        Refusal{"rope_scaling",
                {{"rope_type", "llama3"}, {"factor", 2}, {"low_freq_factor", 4}, {"high_freq_factor", 1}},
                kBad,
                "high_freq_factor"},
        Refusal{"vocab_size", "100", kBad, "vocab_size must be a whole number"},
        Refusal{"vocab_size", 0, kBad, "vocab_size is 0"},
        Refusal{"vocab_size", nullptr, kBad, "vocab_size is missing"},
        Refusal{"hidden_size", 1e18, kBad, "hidden_size must be a whole number"},
        Refusal{"hidden_size", int64_t{1} << 40, kBad, "hidden_size is"},
        Refusal{"num_key_value_heads", 3, kBad, "num_key_value_heads"},
        Refusal{"head_dim", 7, kBad, "head_dim must be even"}, Refusal{"rms_norm_eps", -1.0, kBad, "rms_norm_eps"},
        Refusal{"tie_word_embeddings", "yes", kBad, "tie_word_embeddings"},
        Refusal{"eos_token_id", 100, kBad, "eos_token_id"},
        Refusal{"eos_token_id", json::array({"</s>"}), kBad, "eos_token_id"}));

TEST(ModelSpec, TextThatIsNoConfigThenInvalidArgument) {
  for (const char* text : {"", "{", "[]", "null", "{\"vocab_size\": 1, \"vocab_size\": 2}", "{\"a\": \"\xff\"}"}) {
    const auto spec = parse_model_spec(text, "config.json");
    ASSERT_FALSE(spec.ok()) << text;
    EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(ModelSpec, DirectoryThenGenerationConfigGivesTheEosIds) {
  const TempDir dir;
  write_text(dir / "config.json", tiny_config("Qwen2ForCausalLM").dump());
  auto spec = load_model_spec(dir.path());
  ASSERT_TRUE(spec.ok());
  EXPECT_THAT(spec->eos_token_ids, ElementsAre(7, 9));
  write_text(dir / "generation_config.json", R"({"temperature": 0.7})");
  spec = load_model_spec(dir.path());
  ASSERT_TRUE(spec.ok());
  EXPECT_THAT(spec->eos_token_ids, ElementsAre(7, 9));
  write_text(dir / "generation_config.json", R"({"eos_token_id": 3})");
  spec = load_model_spec(dir.path());
  ASSERT_TRUE(spec.ok());
  EXPECT_THAT(spec->eos_token_ids, ElementsAre(3));
  write_text(dir / "generation_config.json", R"({"eos_token_id": 1000})");
  EXPECT_FALSE(load_model_spec(dir.path()).ok());
}

TEST(ModelSpec, DirectoryWithoutConfigThenNotFound) {
  const TempDir dir;
  const auto spec = load_model_spec(dir.path());
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace tuft::engine
