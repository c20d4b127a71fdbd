// Compares tokens with those of Hugging Face's library, for six kinds of tokenizers and about 3,500 strings in many
// scripts, which tests/parity/make_tokenizer_data.py recorded.
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tokenizer/tokenizer.h"

namespace tuft::tokenizer {
namespace {

const std::string kData = "tests/parity/data/tokenizer/";

struct Case {
  std::string text;
  std::vector<int32_t> ids;
  std::optional<std::string> decoded;
};

std::string read(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<Case> read_cases(const std::string& kind) {
  std::ifstream in(kData + kind + ".cases.jsonl");
  std::string line;
  std::getline(in, line);
  const auto expected = nlohmann::json::parse(line).at("cases").get<size_t>();
  std::vector<Case> cases;
  while (std::getline(in, line)) {
    const auto json = nlohmann::json::parse(line);
    Case one{json[0].get<std::string>(), json[1].get<std::vector<int32_t>>(), std::nullopt};
    if (json.size() > 2) one.decoded = json[2].get<std::string>();
    cases.push_back(std::move(one));
  }
  EXPECT_EQ(cases.size(), expected);
  return cases;
}

class TokenizerParity : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerParity, EncodesAndDecodesLikeHuggingFace) {
  const std::string kind = GetParam();
  const auto tokenizer = Tokenizer::parse(read(kData + kind + ".json"), kind);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  for (const Case& one : read_cases(kind)) {
    const auto ids = tokenizer->encode(one.text);
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    EXPECT_EQ(*ids, one.ids) << nlohmann::json(one.text).dump(-1, ' ', true);
    if (one.decoded) {
      EXPECT_EQ(tokenizer->decode(one.ids), *one.decoded) << nlohmann::json(one.text).dump(-1, ' ', true);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenizerParity,
                         ::testing::Values("gpt2", "llama3", "qwen2", "llama2", "llama2_legacy", "odd"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace tuft::tokenizer
