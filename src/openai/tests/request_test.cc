#include "openai/request.h"

#include <gtest/gtest.h>

namespace tuft::openai {
namespace {

Request read(Endpoint endpoint, const Json& more, Problem& problem) {
  Json body = endpoint == Endpoint::kChat ? Json{{"model", "m"}, {"messages", {{{"role", "user"}, {"content", "hi"}}}}}
                                          : Json{{"model", "m"}, {"prompt", "hi"}};
  body.update(more);
  return read_request(endpoint, body.dump(), problem);
}

std::string refused(Endpoint endpoint, const Json& more) {
  Problem problem;
  (void)read(endpoint, more, problem);
  EXPECT_TRUE(problem.status.ok() == problem.param.empty());
  if (!problem.status.ok()) {
    EXPECT_NE(problem.status.error().message.find(problem.param), std::string::npos);
  }
  return problem.param;
}

TEST(Request, UnsupportedFieldIsNamed) {
  const Json both = Json::parse(R"({
           "logit_bias": {"1": 2}, "frequency_penalty": 0.5, "presence_penalty": -1, "repetition_penalty": 1.2,
           "response_format": {"type": "json_object"}, "n": 0, "temperature": -1, "top_p": 0, "top_k": -2,
           "stop": [""], "seed": 1.5, "stream": "yes", "stream_options": {"include_usage": true}})");
  for (const auto& [field, value] : both.items()) {
    EXPECT_EQ(refused(Endpoint::kChat, {{field, value}}), field);
    EXPECT_EQ(refused(Endpoint::kCompletions, {{field, value}}), field);
  }
  const Json chat = Json::parse(R"({
           "audio": {"voice": "a"}, "functions": [{"name": "f"}], "function_call": "auto", "tool_choice": "required",
           "modalities": ["text", "audio"], "prediction": {}, "top_logprobs": 3, "max_completion_tokens": 0,
           "messages": []})");
  for (const auto& [field, value] : chat.items()) {
    EXPECT_EQ(refused(Endpoint::kChat, {{field, value}}), field);
  }
  const Json completions = Json::parse(R"({
           "suffix": "end", "best_of": 2, "logprobs": 21, "max_tokens": 0, "prompt": [1, -1]})");
  for (const auto& [field, value] : completions.items()) {
    EXPECT_EQ(refused(Endpoint::kCompletions, {{field, value}}), field);
  }
  EXPECT_EQ(refused(Endpoint::kChat, {{"messages", {{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}}}}),
            "messages[0].content");
}

TEST(Request, HarmlessAndUnknownFieldsAreAccepted) {
  const Json harmless = Json::parse(R"({
      "logit_bias": {}, "frequency_penalty": 0, "presence_penalty": 0.0, "response_format": {"type": "text"},
      "user": "u", "store": true, "never_heard_of": [1], "stop": null, "seed": null, "n": 1})");
  EXPECT_EQ(refused(Endpoint::kChat, harmless), "");
  EXPECT_EQ(refused(Endpoint::kCompletions, harmless), "");
}

TEST(Request, PromptHasFourForms) {
  const auto prompts = [](const Json& prompt) {
    Problem problem;
    const Request request = read(Endpoint::kCompletions, {{"prompt", prompt}}, problem);
    EXPECT_TRUE(problem.status.ok());
    return request.prompts;
  };
  EXPECT_EQ(prompts("a"), (std::vector<Prompt>{"a"}));
  EXPECT_EQ(prompts({"a", "b"}), (std::vector<Prompt>{"a", "b"}));
  EXPECT_EQ(prompts({1, 2}), (std::vector<Prompt>{std::vector<int32_t>{1, 2}}));
  EXPECT_EQ(prompts(Json::array({Json::array({1}), Json::array({2, 3})})),
            (std::vector<Prompt>{std::vector<int32_t>{1}, std::vector<int32_t>{2, 3}}));
}

TEST(Request, TextPartsAreJoinedByNewlines) {
  Problem problem;
  const Json parts = Json::parse(R"([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])");
  const Request request = read(Endpoint::kChat, {{"messages", {{{"role", "user"}, {"content", parts}}}}}, problem);
  EXPECT_EQ(request.messages[0]["content"], "a\nb");
}

TEST(Request, BodyMustBeAnObject) {
  for (const std::string body : {"", "[]", "{", "\"a\"", "{\"a\":\xFF}"}) {
    Problem problem;
    (void)read_request(Endpoint::kChat, body, problem);
    EXPECT_EQ(problem.status.error().reason, "invalid_json") << body;
  }
  Problem problem;
  (void)read_request(Endpoint::kChat, "{\"a\":" + std::string(100'000, '['), problem);
  EXPECT_EQ(problem.status.error().reason, "invalid_json");
}

}  // namespace
}  // namespace tuft::openai
