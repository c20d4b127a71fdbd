// Compares rendered templates with the results of transformers and Jinja, which tests/parity/make_chat_data.py
// recorded.
#include <fstream>
#include <map>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "chat/chat_template.h"

namespace tuft::chat {
namespace {

using Json = nlohmann::ordered_json;

const std::string kData = "tests/parity/data/chat/";

RenderOptions options_of(const Json& json) {
  RenderOptions options;
  options.now = 1'735'689'845 * kSecond + 123'456 * kMicrosecond;  // 2025-01-01 00:04:05.123456
  if (json.contains("add_generation_prompt")) options.add_generation_prompt = json["add_generation_prompt"].get<bool>();
  if (json.contains("tools")) options.tools = &json["tools"];
  if (json.contains("documents")) options.documents = &json["documents"];
  if (json.contains("variables")) options.variables = &json["variables"];
  options.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  return options;
}

// Each line is a case: a template or its name, the name of a conversation, options, the expected text (null for an
// error), and the expected text of raise_exception.
class Parity : public ::testing::TestWithParam<const char*> {
 protected:
  static Json read(const std::string& path) {
    std::ifstream in(path);
    return Json::parse(in);
  }
};

void check(const Json& one, const std::string& source, const Json& messages, const Json& options) {
  const auto parsed = ChatTemplate::parse(source);
  const Json& expected = one.at("text");
  const auto rendered =
      parsed.ok() ? parsed->render(messages, options_of(options)) : Result<std::string>(parsed.error());
  const std::string what = one.dump().substr(0, 2000);
  if (expected.is_null()) {
    ASSERT_FALSE(rendered.ok()) << what << "\ngives " << Json(*rendered).dump();
    if (one.contains("raised")) {
      EXPECT_EQ(rendered.error().message, one["raised"].get<std::string>()) << what;
      EXPECT_EQ(rendered.error().reason, "template_raised") << what;
    }
    return;
  }
  ASSERT_TRUE(rendered.ok()) << what << "\nfails with " << rendered.error().message;
  EXPECT_EQ(Json(*rendered).dump(), expected.dump()) << what;
}

TEST_P(Parity, RendersLikeTransformers) {
  const Json shared = read(kData + "shared.json");
  std::ifstream in(kData + GetParam() + std::string(".jsonl"));
  std::string line;
  std::getline(in, line);
  const auto count = Json::parse(line).at("cases").get<size_t>();
  size_t seen = 0;
  while (std::getline(in, line)) {
    const Json one = Json::parse(line);
    const std::string& source = one.at("template").get_ref<const std::string&>();
    const bool is_named = shared.at("templates").contains(source);
    Json options = one.contains("options") ? one["options"] : Json::object();
    if (options.is_string()) options = shared.at("options").at(options.get<std::string>());
    check(one, is_named ? shared["templates"][source].get<std::string>() : source,
          one.contains("chat") ? shared.at("chats").at(one["chat"].get<std::string>()) : Json::array(), options);
    ++seen;
  }
  EXPECT_EQ(seen, count);
}

INSTANTIATE_TEST_SUITE_P(Files, Parity, ::testing::Values("expressions", "whitespace", "statements", "families"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace tuft::chat
