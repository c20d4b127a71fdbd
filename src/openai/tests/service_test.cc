#include "openai/service.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "openai/answers.h"
#include "openai/tests/service_fixture.h"

namespace tuft::openai {
namespace {

TEST_F(ServiceTest, CompletionHasTextUsageAndReason) {
  Call call(service, Endpoint::kCompletions, completion({{"n", 2}, {"seed", 5}, {"max_tokens", 3}}));
  generation.await_started(1);
  const control::GenerationRequest request = generation.started(0).request;
  EXPECT_EQ(request.prompt_tokens, tokens("hi"));
  EXPECT_EQ(request.num_samples, 2);
  EXPECT_EQ(request.params.seed(), 5U);
  EXPECT_EQ(request.params.max_tokens(), 3);
  generation.give(0, 1, tokens("xy"));
  generation.give(0, 0, tokens("abc"));
  generation.give(0, 1, {ByteModel::kTurnEnd});
  generation.finish(0, {false, true});
  const Json answer = call.answer();
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["model"], "base/model");
  EXPECT_EQ(answer["choices"][0]["text"], "abc");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["choices"][1]["text"], "xy");
  EXPECT_EQ(answer["choices"][1]["finish_reason"], "stop");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 6);
  EXPECT_EQ(answer["usage"]["total_tokens"], 8);
}

TEST_F(ServiceTest, ConversationIsRenderedWithSpecialTokens) {
  Call call(service, Endpoint::kChat, chat({{"max_completion_tokens", 4}}));
  generation.await_started(1);
  std::vector<int32_t> expected = {257};
  for (const int32_t token : tokens("user:hi")) expected.push_back(token);
  expected.insert(expected.end(), {258, 257});
  for (const int32_t token : tokens("assistant:")) expected.push_back(token);
  EXPECT_EQ(generation.started(0).request.prompt_tokens, expected);
  generation.give(0, 0, tokens("yes"));
  generation.finish(0, {true});
  const Json answer = call.answer();
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "yes");
}

TEST_F(ServiceTest, StreamedTextEqualsTheUnstreamed) {
  Call call(service, Endpoint::kChat,
            chat({{"stream", true}, {"n", 2}, {"stop", "END"}, {"stream_options", {{"include_usage", true}}}}));
  generation.await_started(1);
  generation.give(0, 0, tokens("one "));
  const Reply reply = call.reply();
  ASSERT_NE(reply.events, nullptr);
  generation.give(0, 1, tokens("\xE2\x82"));
  generation.give(0, 0, tokens("twoEN"));
  EXPECT_NE(next(*reply.events).find("one two"), std::string::npos);
  generation.give(0, 1, tokens("\xAC"));
  generation.give(0, 0, tokens("D"));
  generation.finish(0, {true, false});
  std::string second;
  std::string reason[2];
  Json usage;
  for (const Json& event : read_events(*reply.events)) {
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    if (event["choices"].empty()) {
      usage = event["usage"];
      continue;
    }
    const Json& choice = event["choices"][0];
    const auto index = choice["index"].get<size_t>();
    if (index == 1) second += choice["delta"].value("content", "");
    EXPECT_TRUE(index == 1 || choice["delta"].value("content", "").empty());
    if (!choice["finish_reason"].is_null()) reason[index] = choice["finish_reason"];
  }
  EXPECT_EQ(second, "\xE2\x82\xAC");
  EXPECT_EQ(reason[0], "stop");
  EXPECT_EQ(reason[1], "length");
  EXPECT_EQ(usage["completion_tokens"], 13);
}

TEST_F(ServiceTest, EveryPromptIsAGenerationAndChoicesAreInOrder) {
  Call call(service, Endpoint::kCompletions, completion({{"prompt", {"a", "b"}}, {"echo", true}}));
  generation.await_started(2);
  generation.give(1, 0, tokens("2"));
  generation.finish(1, {false});
  generation.give(0, 0, tokens("1"));
  generation.finish(0, {false});
  const Json answer = call.answer();
  EXPECT_EQ(answer["choices"][0]["text"], "a1");
  EXPECT_EQ(answer["choices"][1]["text"], "b2");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 2);
}

TEST_F(ServiceTest, LogprobsNameTokensAndAlternatives) {
  Call whole(service, Endpoint::kCompletions, completion({{"logprobs", 2}}));
  generation.await_started(1);
  EXPECT_EQ(generation.started(0).request.topk_logprobs, 2);
  generation.give(0, 0, tokens("ab"));
  generation.finish(0, {false});
  const Json logprobs = whole.answer()["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json({"a", "b"}));
  EXPECT_EQ(logprobs["token_logprobs"], Json({-0.5, -0.5}));
  EXPECT_EQ(logprobs["text_offset"], Json({0, 1}));
  EXPECT_EQ(logprobs["top_logprobs"][0]["b"], -1.5);

  Call talk(service, Endpoint::kChat, chat({{"logprobs", true}, {"top_logprobs", 1}}));
  generation.await_started(2);
  generation.give(1, 0, tokens("a"));
  generation.finish(1, {false});
  const Json content = talk.answer()["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 1U);
  EXPECT_EQ(content[0]["bytes"], Json::array({97}));
  EXPECT_EQ(content[0]["top_logprobs"][0]["token"], "a");
}

// lm-eval asks so, and leaves the last entry out: without one for the end token it would lose a token of the prompt.
TEST_F(ServiceTest, EveryTokenHasALogprobAlsoAnEndToken) {
  Call call(service, Endpoint::kCompletions,
            completion({{"prompt", "ab"}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 1}}));
  generation.await_started(1);
  generation.give(0, 0, {ByteModel::kTurnEnd});
  generation.finish(0, {true});
  const Json answer = call.answer();
  const Json logprobs = answer["choices"][0]["logprobs"];
  EXPECT_EQ(answer["choices"][0]["text"], "ab");
  EXPECT_EQ(answer["usage"]["total_tokens"], 3);
  EXPECT_EQ(logprobs["tokens"], Json({"a", "b", "<|im_end|>"}));
  EXPECT_EQ(logprobs["text_offset"], Json({0, 1, 2}));
  EXPECT_EQ(logprobs["token_logprobs"], Json({nullptr, nullptr, -0.5}));
  EXPECT_EQ(logprobs["top_logprobs"].size(), 3U);
}

// Bytes that are no UTF-8 text all look alike; each alternative needs a name of its own.
TEST_F(ServiceTest, AlternativesWithoutTextHaveNamesOfTheirOwn) {
  AnswerHead head;
  head.logprobs = true;
  head.top_logprobs = 3;
  WholeChoice choice;
  ShownToken token;
  token.chosen = {0xe2, -1};
  token.top = {{0xe2, -1}, {0xe3, -2}, {'a', -3}};
  choice.piece.tokens.push_back(token);
  const Json answer = Json::parse(whole_answer(head, *model.text(), {choice}, {}));
  const Json logprobs = answer["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json({R"(bytes:\xe2)"}));
  EXPECT_EQ(logprobs["top_logprobs"][0], Json({{R"(bytes:\xe2)", -1.0}, {R"(bytes:\xe3)", -2.0}, {"a", -3.0}}));
}

// What waits for a slow client is not composed at once when it reads again.
TEST_F(ServiceTest, EventsThatWereNotReadComeInPieces) {
  generation.model_config.max_model_len = 8192;
  Call call(service, Endpoint::kCompletions,
            completion({{"stream", true}, {"logprobs", 5}, {"n", 2}, {"max_tokens", 4000}}));
  generation.await_started(1);
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "ab\xE2\x82\xAC";
  for (const int sample : {0, 1}) generation.give(0, sample, tokens(text));
  const Reply reply = call.reply();
  ASSERT_NE(reply.events, nullptr);
  EXPECT_FALSE(reply.is_json);
  generation.finish(0, {false, false});
  std::string read[2];
  size_t shown[2] = {0, 0};
  int ends = 0;
  std::string all;
  for (std::string piece = next(*reply.events); !piece.empty(); piece = next(*reply.events)) {
    EXPECT_LT(piece.size(), 2 * kAnswerPieceBytes);
    all += piece;
  }
  ASSERT_TRUE(all.ends_with(kDoneEvent));
  all.resize(all.size() - kDoneEvent.size());
  for (size_t at = 0, end = 0; at < all.size(); at = end + 2) {
    end = all.find("\n\n", at);
    const Json choice = Json::parse(all.substr(at + 6, end - at - 6))["choices"][0];
    const auto index = choice["index"].get<size_t>();
    read[index] += choice["text"].get<std::string>();
    if (!choice["logprobs"].is_null()) shown[index] += choice["logprobs"]["tokens"].size();
    if (!choice["finish_reason"].is_null()) ++ends;
  }
  EXPECT_EQ(ends, 2);
  for (const size_t index : {size_t{0}, size_t{1}}) {
    EXPECT_EQ(read[index], text);
    EXPECT_EQ(shown[index], 5000U);
  }
}

TEST_F(ServiceTest, RefusalsHaveOpenAisShape) {
  Call field(service, Endpoint::kCompletions, completion({{"suffix", "x"}}));
  const Reply reply = field.reply();
  EXPECT_EQ(reply.status, 400);
  const Json error = Json::parse(reply.body)["error"];
  EXPECT_EQ(error["param"], "suffix");
  EXPECT_EQ(error["type"], "invalid_request_error");

  Call unknown(service, Endpoint::kChat, chat({{"model", "nobody"}}));
  const Reply no_model = unknown.reply();
  EXPECT_EQ(no_model.status, 404);
  EXPECT_EQ(Json::parse(no_model.body)["error"]["code"], "model_not_found");

  Call foreign(service, Endpoint::kChat, chat({{"model", FakeGeneration::kCheckpoint}}), kBob);
  EXPECT_EQ(foreign.reply().body, no_model.body);

  Call tools(service, Endpoint::kChat, chat({{"tools", {{{"type", "function"}}}}}));
  EXPECT_EQ(Json::parse(tools.reply().body)["error"]["param"], "tools");
  EXPECT_EQ(generation.count(), 0U);
}

TEST_F(ServiceTest, ModelWithoutATemplateSaysSo) {
  const ByteModel bare("");
  generation.model_config = bare.config();
  Call call(service, Endpoint::kChat, chat());
  const Reply reply = call.reply();
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(Json::parse(reply.body)["error"]["code"], "no_chat_template");
}

TEST_F(ServiceTest, LateRefusalOfAStreamIsAStatus) {
  Call call(service, Endpoint::kChat, chat({{"stream", true}}));
  generation.await_started(1);
  generation.finish(0, Error{ErrorCode::kResourceExhausted, "too many", "queue_full"});
  const Reply reply = call.reply();
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(reply.events, nullptr);
}

// ---- the queue

TEST_F(ServiceTest, UserWithManyRequestsDoesNotDelayOthers) {
  OneThread pool(generation, 20 * kCostOfRequest);
  Service& busy = pool.service;
  generation.hold(true);
  std::vector<std::unique_ptr<Call>> calls;
  calls.push_back(std::make_unique<Call>(busy, Endpoint::kCompletions, completion()));
  generation.await_started(1);  // the only thread is busy
  for (int i = 0; i < 18; ++i) calls.push_back(std::make_unique<Call>(busy, Endpoint::kCompletions, completion()));
  Call bobs(busy, Endpoint::kCompletions, completion(), kBob);
  generation.hold(false);
  generation.await_started(20);
  size_t turn = 0;
  while (generation.started(turn).user != kBob) ++turn;
  EXPECT_LT(turn, 8U);  // not behind all 19 of alice
}

TEST_F(ServiceTest, QueueIsBoundedPerUser) {
  OneThread pool(generation, 3 * kCostOfRequest);
  Service& busy = pool.service;
  generation.hold(true);
  Call running(busy, Endpoint::kCompletions, completion());
  generation.await_started(1);
  Call first(busy, Endpoint::kCompletions, completion());
  Call second(busy, Endpoint::kCompletions, completion());
  const Reply over = Call(busy, Endpoint::kCompletions, completion()).reply();
  EXPECT_EQ(over.status, 429);
  EXPECT_NE(over.body.find("too many of your requests"), std::string::npos) << over.body;
  Call bobs(busy, Endpoint::kCompletions, completion(), kBob);
  generation.hold(false);
  generation.await_started(4);
}

TEST_F(ServiceTest, QueueIsBoundedInTotalExceptForAUsersOnlyRequest) {
  OneThread pool(generation, 8 * kCostOfRequest, 3 * kCostOfRequest);
  Service& busy = pool.service;
  generation.hold(true);
  Call running(busy, Endpoint::kCompletions, completion());
  generation.await_started(1);
  Call first(busy, Endpoint::kCompletions, completion());
  Call second(busy, Endpoint::kCompletions, completion());
  Call bobs(busy, Endpoint::kCompletions, completion(), kBob);
  EXPECT_EQ(Call(busy, Endpoint::kCompletions, completion(), kBob).reply().status, 429);
  EXPECT_EQ(Call(busy, Endpoint::kCompletions, completion()).reply().status, 429);
  generation.hold(false);
  generation.await_started(4);
}

TEST_F(ServiceTest, FailureWhileStreamingIsAnEvent) {
  Call call(service, Endpoint::kCompletions, completion({{"stream", true}}));
  generation.await_started(1);
  generation.give(0, 0, tokens("a"));
  const Reply reply = call.reply();
  ASSERT_NE(reply.events, nullptr);
  EXPECT_NE(next(*reply.events).find("\"a\""), std::string::npos);
  generation.finish(0, unavailable("the worker died", "worker_died"));
  const auto events = read_events(*reply.events);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0]["error"]["code"], "worker_died");
}

TEST_F(ServiceTest, GivingUpEndsTheGeneration) {
  Call whole(service, Endpoint::kCompletions, completion());
  generation.await_started(1);
  whole.give_up();
  generation.await_cancelled(0);

  Call streamed(service, Endpoint::kCompletions, completion({{"stream", true}}));
  generation.await_started(2);
  generation.give(1, 0, tokens("a"));
  Reply reply = streamed.reply();
  streamed.give_up();
  EXPECT_FALSE(generation.started(1).cancelled);
  reply.events.reset();
  generation.await_cancelled(1);
}

}  // namespace
}  // namespace tuft::openai
