#include "engine/init_model.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "engine/weights/safetensors.h"
#include "tokenizer/decoder.h"

namespace tuft::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

InitModelOptions tiny_options(Family family) {
  InitModelOptions options;
  options.family = family;
  options.hidden_size = 16;
  options.intermediate_size = 24;
  options.layers = 2;
  options.heads = 4;
  options.kv_heads = 2;
  options.head_dim = 6;
  options.max_position = 128;
  return options;
}

int64_t stored_parameters(const TensorFiles& files) {
  int64_t sum = 0;
  for (const std::string& name : files.names()) sum += files.find(name)->elements();
  return sum;
}

TEST(InitModel, EveryFamilyThenItsDirectoryIsReadBack) {
  for (const FamilyFacts& facts : families()) {
    for (const bool tied : {true, false}) {
      const TempDir dir;
      InitModelOptions options = tiny_options(facts.family);
      options.tie_word_embeddings = tied;
      const Status made = init_model(dir / "model", options);
      ASSERT_TRUE(made.ok()) << made.error().message;
      const auto spec = load_model_spec(dir / "model");
      ASSERT_TRUE(spec.ok()) << spec.error().message;
      EXPECT_EQ(spec->family, facts.family);
      EXPECT_EQ(spec->vocab_size, 260);
      EXPECT_EQ(spec->head_dim, 6);
      EXPECT_EQ(spec->kv_heads, 2);
      EXPECT_EQ(spec->max_position, 128);
      EXPECT_EQ(spec->tie_word_embeddings, tied);
      EXPECT_THAT(spec->eos_token_ids, ElementsAre(258, 256));
      const auto files = TensorFiles::open_model(dir / "model");
      ASSERT_TRUE(files.ok()) << files.error().message;
      EXPECT_EQ(stored_parameters(**files), spec->parameters());
      EXPECT_EQ((*files)->contains("lm_head.weight"), !tied);
      EXPECT_EQ((*files)->contains("model.layers.1.self_attn.k_norm.weight"), facts.qk_norm);
      EXPECT_EQ((*files)->contains("model.layers.1.self_attn.k_proj.bias"), facts.always_qkv_bias);
    }
  }
}

double deviation(const TensorFiles& files, const std::string& name) {
  const auto values = files.find(name)->to_float();
  double sum = 0;
  double squares = 0;
  for (const float x : *values) {
    sum += x;
    squares += double{x} * x;
  }
  const auto count = static_cast<double>(values->size());
  EXPECT_NEAR(sum / count, 0.0, 2e-3);
  return std::sqrt(squares / count);
}

TEST(InitModel, LayersKeepTheVarianceOfActivations) {
  const TempDir dir;
  InitModelOptions options = tiny_options(Family::kQwen3);
  options.hidden_size = 256;
  ASSERT_TRUE(init_model(dir / "model", options).ok());
  const auto files = TensorFiles::open_model(dir / "model");
  EXPECT_NEAR(deviation(**files, "model.embed_tokens.weight"), 0.1, 2e-3);
  EXPECT_NEAR(deviation(**files, "model.layers.0.self_attn.q_proj.weight"), 1.0 / 16, 2e-3);
  EXPECT_THAT(*(*files)->find("model.norm.weight")->to_float(), ::testing::Each(1.0F));
}

TEST(InitModel, SeedThenItDecidesTheBytes) {
  const TempDir dir;
  InitModelOptions options = tiny_options(Family::kLlama);
  options.dtype = Dtype::kBfloat16;
  ASSERT_TRUE(init_model(dir / "a", options).ok());
  ASSERT_TRUE(init_model(dir / "b", options).ok());
  options.seed = 1;
  ASSERT_TRUE(init_model(dir / "c", options).ok());
  EXPECT_EQ(read_text(dir / "a/model.safetensors"), read_text(dir / "b/model.safetensors"));
  EXPECT_NE(read_text(dir / "a/model.safetensors"), read_text(dir / "c/model.safetensors"));
  EXPECT_EQ((*TensorFiles::open_model(dir / "a"))->find("model.norm.weight")->dtype, Dtype::kBfloat16);
}

TEST(InitModel, TokenizerThenEachByteHasItsToken) {
  const TempDir dir;
  ASSERT_TRUE(init_model(dir / "model", tiny_options(Family::kQwen3)).ok());
  const auto decoder = tokenizer::Decoder::load(dir / "model");
  ASSERT_TRUE(decoder.ok()) << decoder.error().message;
  EXPECT_EQ(decoder->size(), 260);
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(decoder->token_bytes(byte), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(decoder->token_bytes(256), "<|endoftext|>");
  EXPECT_EQ(decoder->token_bytes(258), "<|im_end|>");
}

TEST(InitModel, DirectoryTakenThenAlreadyExistsAndUntouched) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "model");
  const Status made = init_model(dir / "model", tiny_options(Family::kQwen3));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kAlreadyExists);
  EXPECT_TRUE(std::filesystem::is_empty(dir / "model"));
}

TEST(InitModel, InvalidOptionsAreNamedAndLeaveNothing) {
  const TempDir dir;
  const auto refused = [&](auto edit, const char* message) {
    InitModelOptions options = tiny_options(Family::kLlama);
    edit(options);
    const Status made = init_model(dir / "model", options);
    ASSERT_FALSE(made.ok()) << message;
    EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(made.error().message, HasSubstr(message));
  };
  refused([](auto& o) { o.kv_heads = 3; }, "num_key_value_heads");
  refused([](auto& o) { o.head_dim = 5; }, "head_dim");
  refused([](auto& o) { o.layers = 0; }, "num_hidden_layers");
  refused([](auto& o) { o.hidden_size = -16; }, "hidden_size");
  refused([](auto& o) { o.hidden_size = 18; }, "multiple of heads");
  refused([](auto& o) { o.dtype = Dtype::kFloat16; }, "dtype");
  refused(
      [](auto& o) {
        o.hidden_size = 1 << 19;
        o.intermediate_size = 1 << 19;
      },
      "parameters");
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace
}  // namespace tuft::engine
