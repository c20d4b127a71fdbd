// Tests of what requests are charged for, and of the turns in which they are prepared.
#include <algorithm>
#include <cstddef>
#include <future>
#include <malloc.h>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "openai/completion.h"
#include "openai/service.h"
#include "openai/tests/service_fixture.h"

namespace tuft::openai {
namespace {

class Charging : public ServiceTest {
 protected:
  static std::vector<int32_t> long_tokens(size_t count) { return std::vector<int32_t>(count, ByteModel::kLongToken); }
  // Expects that a request of Bob's starts before Alice's, of `prompts` prompts, which a thread is reading.
  void expect_bob_between(const Json& prompt, size_t prompts) {
    generation.model_config.max_model_len = 1 << 20;
    std::promise<void> reading;
    std::promise<void> queued;
    bool is_first = true;
    generation.on_resolve = [&] {
      if (!std::exchange(is_first, false)) return;
      reading.set_value();
      queued.get_future().wait();
    };
    Call alices(service, Endpoint::kCompletions, completion({{"prompt", prompt}}));
    reading.get_future().wait();
    Call bobs(service, Endpoint::kCompletions, completion(), kBob);
    queued.set_value();
    generation.await_started(1 + prompts);
    EXPECT_EQ(generation.started(0).user, kBob);
    generation.on_resolve = [] {};
  }
};

// ---- prompts

// All prompts of a request, 16 MiB of text, were encoded in one task of seconds.
TEST_F(Charging, OthersComeBetweenThePromptsOfARequest) {
  const std::string text(kEncodedAtATime, 'a');
  expect_bob_between({text, text, text}, 3);
  for (const size_t index : {size_t{1}, size_t{2}, size_t{3}}) {
    EXPECT_EQ(generation.started(index).request.prompt_tokens.size(), text.size());
  }
}

// So was one word, of several MiB.
TEST_F(Charging, OthersComeBetweenThePartsOfALongWord) {
  const std::string text(8 * kEncodedAtATime, 'a');
  expect_bob_between(text, 1);
  EXPECT_EQ(generation.started(1).request.prompt_tokens, tokens(text));
}

TEST_F(Charging, EncodingIsChargedBeforeItBegins) {
  generation.model_config.max_model_len = 1 << 20;
  generation.memory_max = 1'000'000;
  generation.refusal = unavailable("the prompt was encoded", "encoded");
  Call call(service, Endpoint::kCompletions, completion({{"prompt", std::string(100'000, 'a')}}));
  const Reply reply = call.reply();
  EXPECT_EQ(reply.status, 429);
  EXPECT_NE(reply.body.find("limits.queued_bytes_per_user_max"), std::string::npos) << reply.body;
  only.work->stop();
  EXPECT_EQ(generation.memory->total(), 0);
}

TEST_F(Charging, WhatANormalizerAddsIsChargedToo) {
  const ByteModel expanding("", Json::object({{"type", "NFKC"}}));
  generation.model_config = expanding.config();
  generation.model_config.max_model_len = 1 << 20;
  generation.memory_max = 1'000'000;
  generation.refusal = unavailable("the prompt was encoded", "encoded");
  std::string prompt;
  for (int i = 0; i < 1'000; ++i) prompt += "\ufdfa";  // 3 bytes, of which NFKC makes 33
  Call call(service, Endpoint::kCompletions, completion({{"prompt", prompt}}));
  const Reply reply = call.reply();
  EXPECT_EQ(reply.status, 429);
  EXPECT_NE(reply.body.find("limits.queued_bytes_per_user_max"), std::string::npos) << reply.body;
  only.work->stop();
  EXPECT_EQ(generation.memory->total(), 0);
}

TEST_F(Charging, TokensOfPromptsAreChargedUntilTheAnswerIsRead) {
  generation.model_config.max_model_len = 4096;
  Call call(service, Endpoint::kCompletions, completion({{"prompt", std::string(4'000, 'a')}}));
  generation.await_started(1);
  EXPECT_EQ(generation.memory->total(), kept_bytes(Request(), {.prompt_tokens = 4'000, .output_tokens = 16}));
  EXPECT_GE(generation.memory->total(), 4'000 * 4);
}

TEST_F(Charging, APromptWithTooManyTokensIsRefusedWhenTheyAreMade) {
  generation.refusal = unavailable("the prompt was encoded", "encoded");
  const std::string text(static_cast<size_t>(generation.model_config.max_model_len) + 1, 'a');
  Call call(service, Endpoint::kCompletions, completion({{"prompt", {"a", text}}}));
  const Reply reply = call.reply();
  EXPECT_EQ(reply.status, 400);
  const Json error = Json::parse(reply.body)["error"];
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["param"], "prompt");
}

// ---- answers

// A token was charged with 8 bytes of text, and can have 128.
TEST_F(Charging, ALongTextIsChargedAsItGrowsAndWrittenInPieces) {
  generation.model_config.max_model_len = 4096;
  Call call(service, Endpoint::kCompletions, completion({{"n", 2}, {"max_tokens", 3'000}}));
  generation.await_started(1);
  EXPECT_LT(generation.memory->total(), 100'000);
  generation.give(0, 0, long_tokens(2'000));
  const auto long_bytes = static_cast<int64_t>(2'000 * ByteModel::kLongTokenBytes);
  EXPECT_GE(generation.memory->held_by("alice"), long_bytes);
  std::string characters;
  for (int i = 0; i < 5'000; ++i) characters += "ab\xE2\x82\xAC";
  generation.give(0, 1, tokens(characters));
  generation.finish(0, {false, false});
  Reply reply = call.reply();
  ASSERT_NE(reply.events, nullptr);
  EXPECT_GE(generation.memory->held_by("alice"), long_bytes + static_cast<int64_t>(characters.size()));
  std::string body;
  for (std::string piece = next(*reply.events); !piece.empty(); piece = next(*reply.events)) {
    EXPECT_LT(piece.size(), 2 * kAnswerPieceBytes);
    body += piece;
  }
  const Json answer = Json::parse(body);
  EXPECT_EQ(answer["choices"][0]["text"], std::string(static_cast<size_t>(long_bytes), '~'));
  EXPECT_EQ(answer["choices"][1]["text"], characters);
  reply.events.reset();
  call.give_up();
  only.work->stop();
  generation.forget_listeners();
  EXPECT_EQ(generation.memory->total(), 0);
}

TEST_F(Charging, ATextThatIsTooLongForItsUserEndsTheRequest) {
  generation.memory_max = 100'000;
  Call whole(service, Endpoint::kCompletions, completion());
  generation.await_started(1);
  generation.give(0, 0, long_tokens(1'000));
  generation.finish(0, {false});  // has no effect
  const Reply refused = whole.reply();
  EXPECT_EQ(refused.status, 429);
  EXPECT_NE(refused.body.find("limits.queued_bytes_per_user_max"), std::string::npos) << refused.body;
  generation.await_cancelled(0);

  Call streamed(service, Endpoint::kCompletions, completion({{"stream", true}}));
  generation.await_started(2);
  generation.give(1, 0, tokens("a"));
  const Reply reply = streamed.reply();
  ASSERT_NE(reply.events, nullptr);
  EXPECT_NE(next(*reply.events).find("\"a\""), std::string::npos);
  generation.give(1, 0, long_tokens(1'000));
  generation.finish(1, {false});
  const auto events = read_events(*reply.events);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0]["error"]["code"], "rate_limit_exceeded");
}

TEST_F(Charging, TextThatAStreamsClientHasReadDoesNotCount) {
  generation.model_config.max_model_len = 16'384;
  generation.memory_max = 400'000;
  Call call(service, Endpoint::kCompletions, completion({{"stream", true}, {"max_tokens", 10'000}}));
  generation.await_started(1);
  Reply reply;
  for (int i = 0; i < 10; ++i) {
    generation.give(0, 0, long_tokens(600));
    if (i == 0) reply = call.reply();
    ASSERT_NE(reply.events, nullptr);
    for (auto unread = static_cast<std::ptrdiff_t>(600 * ByteModel::kLongTokenBytes); unread > 0;) {
      const std::string piece = next(*reply.events);
      ASSERT_FALSE(piece.empty());
      unread -= std::count(piece.begin(), piece.end(), '~');
    }
  }
}

// The tree of a long answer with log-probabilities took gigabytes, and nobody paid for it.
TEST_F(Charging, ALongAnswerIsWrittenInPiecesAndChargedUntilItIsRead) {
  generation.model_config.max_model_len = 4096;
  Call call(service, Endpoint::kChat, chat({{"logprobs", true}, {"top_logprobs", 20}, {"n", 2}, {"max_tokens", 1000}}));
  generation.await_started(1);
  EXPECT_GT(generation.memory->held_by("alice"), 2 * 1000 * 20 * 8);
  const std::string text(500, 'a');
  for (const int sample : {0, 1}) generation.give(0, sample, tokens(text));
  generation.finish(0, {false, true});
  Reply reply = call.reply();
  ASSERT_NE(reply.events, nullptr);
  EXPECT_TRUE(reply.is_json);
  EXPECT_GT(generation.memory->held_by("alice"), 2 * 500 * 20 * 8);
  EXPECT_LT(generation.memory->held_by("alice"), 2 * 1000 * 20 * 8);
  std::string body;
  int pieces = 0;
  for (std::string piece = next(*reply.events); !piece.empty(); piece = next(*reply.events)) {
    EXPECT_LT(piece.size(), 2 * kAnswerPieceBytes);
    body += piece;
    ++pieces;
  }
  EXPECT_GT(pieces, 5);
  const Json answer = Json::parse(body);
  EXPECT_EQ(answer["object"], "chat.completion");
  ASSERT_EQ(answer["choices"].size(), 2U);
  EXPECT_EQ(answer["choices"][1]["index"], 1);
  EXPECT_EQ(answer["choices"][1]["message"]["content"], text);
  EXPECT_EQ(answer["choices"][1]["finish_reason"], "stop");
  ASSERT_EQ(answer["choices"][1]["logprobs"]["content"].size(), 500U);
  EXPECT_EQ(answer["choices"][1]["logprobs"]["content"][499]["top_logprobs"].size(), 20U);
  EXPECT_EQ(answer["choices"][1]["logprobs"]["refusal"], nullptr);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 1000);
  reply.events.reset();
  call.give_up();
  only.work->stop();  // which lets go of the last task
  generation.forget_listeners();
  EXPECT_EQ(generation.memory->total(), 0);
}

TEST_F(Charging, AnAnswerThatIsTooLongForItsUserIsRefusedBeforeItBegins) {
  generation.model_config.max_model_len = 1 << 20;
  generation.memory_max = 1 << 20;
  Call call(service, Endpoint::kCompletions, completion({{"logprobs", 20}, {"n", 8}, {"max_tokens", 10000}}));
  const Reply reply = call.reply();
  EXPECT_EQ(reply.status, 429);
  EXPECT_NE(reply.body.find("queued_bytes_per_user_max"), std::string::npos) << reply.body;
  EXPECT_EQ(generation.count(), 0U);
  only.work->stop();
  EXPECT_EQ(generation.memory->total(), 0);
}

// ---- requests

TEST_F(Charging, QueuedRequestsAreChargedToTheirUser) {
  generation.hold(true);
  Call first(service, Endpoint::kCompletions, completion());
  generation.await_started(1);
  const int64_t answer = kept_bytes(Request(), {.prompt_tokens = 2, .output_tokens = 16});
  EXPECT_EQ(generation.memory->total(), answer);  // the body is charged to the generation now
  const Json large = completion({{"user", std::string(5'000, 'x')}});
  Call second(service, Endpoint::kCompletions, large);
  EXPECT_EQ(generation.memory->held_by("alice"), answer + static_cast<int64_t>(large.dump().size()));
  generation.memory_max = 6'000;
  Call third(service, Endpoint::kCompletions, large);
  const Reply refused = third.reply();
  EXPECT_EQ(refused.status, 429);
  EXPECT_NE(refused.body.find("limits.queued_bytes_per_user_max"), std::string::npos);
  Call bobs(service, Endpoint::kCompletions, large, kBob);
  generation.hold(false);
  generation.await_started(3);
  EXPECT_EQ(generation.memory->total(), 3 * answer);
}

// A few kilobytes of zstd kept hundreds of megabytes for as long as the request waited for its turn.
TEST_F(Charging, AStartedRequestKeepsNothingOfItsBody) {
  const auto allocated = [] {
    const struct mallinfo2 info = ::mallinfo2();
    return static_cast<int64_t>(info.uordblks + info.hblkhd);
  };
  const Json large = chat({{"messages", {{{"role", "user"}, {"content", "hi"}, {"x", std::vector<int>(1'000'000)}}}},
                           {"chat_template_kwargs", {{"y", std::vector<int>(1'000'000)}}}});
  const int64_t before = allocated();
  Call call(service, Endpoint::kChat, large);
  generation.await_started(1);
  EXPECT_LT(allocated() - before, 4'000'000);
}

TEST_F(Charging, EchoedTextsAreChargedForEachChoice) {
  generation.model_config.max_model_len = 4096;
  const std::string text(4'000, 'a');
  size_t started = 0;
  for (const Json& prompt : {Json(text), Json(tokens(text))}) {
    Json body = completion({{"prompt", prompt}, {"n", 100}, {"max_tokens", 1}});
    int64_t before = generation.memory->total();
    Call quiet(service, Endpoint::kCompletions, body);
    generation.await_started(++started);
    const int64_t without = generation.memory->total() - before;
    body["echo"] = true;
    before = generation.memory->total();
    Call echoing(service, Endpoint::kCompletions, body);
    generation.await_started(++started);
    EXPECT_GE(generation.memory->total() - before - without, int64_t{100} * 4'000 * (8 + 1));
  }
}

}  // namespace
}  // namespace tuft::openai
