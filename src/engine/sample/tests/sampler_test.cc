#include "engine/sample/sampler.h"

#include <cmath>

#include <gtest/gtest.h>

#include "engine/sample/check_request.h"
#include "engine/sample/tests/one_byte.h"
#include "engine/tests/fake_engine.h"

namespace tuft::engine {
namespace {

using testing::FakeEngine;
using Outcome = std::optional<Result<SampleResult>>;

// The engine makes last + 1 the certain next token.
std::vector<float> counting(const std::optional<AdapterId>&, const FakeEngine::History& history) {
  std::vector<float> logits(16, 0.0F);
  logits[static_cast<size_t>((history.back() + 1) % 16)] = 60.0F;
  return logits;
}

class SamplerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Sampler> make(int batch_tokens = 64, int sequences_max = 64, int queue_max = 64) {
    SamplerOptions options;
    options.batch_tokens = batch_tokens;
    options.sequences_max = sequences_max;
    options.queue_max = queue_max;
    options.tokens_max = 40;
    return make_sampler(engine_.model(), engine_.adapters(), engine_.decoding(), options, one_byte, clock_);
  }
  SampleRequest request(std::vector<int32_t> prompt, int max_tokens, uint64_t seed = 1) {
    SampleRequest result;
    result.prompt = std::move(prompt);
    result.params.max_tokens = max_tokens;
    result.params.seed = seed;
    return result;
  }
  static Sampler::Done into(Outcome& outcome) {
    return [&outcome](Result<SampleResult> result) {
      EXPECT_FALSE(outcome.has_value()) << "answered twice";
      outcome.emplace(std::move(result));
    };
  }
  static void run(Sampler& sampler) {
    for (int i = 0; i < 10000 && !sampler.idle(); ++i) sampler.step();
    EXPECT_TRUE(sampler.idle());
  }
  SampleResult sample(SampleRequest what) {
    const auto sampler = make();
    Outcome outcome;
    const auto number = sampler->submit(std::move(what), into(outcome));
    EXPECT_TRUE(number.ok()) << number.error().message;
    run(*sampler);
    EXPECT_TRUE(outcome->ok());
    EXPECT_EQ(engine_.open_sequences(), 0U);
    return **outcome;
  }
  Error refused(SampleRequest what) {
    const auto sampler = make();
    const auto number = sampler->submit(std::move(what), [](auto) { FAIL() << "refused requests are not answered"; });
    EXPECT_FALSE(number.ok());
    return number.ok() ? Error{} : number.error();
  }

  FakeEngine engine_{16};
  FakeClock clock_;
};

TEST_F(SamplerTest, ASeedGivesTheSameTokensWhateverElseRuns) {
  const SampleResult alone = sample(request({1, 2, 3}, 20, 42));
  ASSERT_EQ(alone.sequences[0].tokens.size(), 20U);
  const auto sampler = make(/*batch_tokens=*/7, /*sequences_max=*/5);
  std::vector<Outcome> others(12);
  Outcome outcome;
  for (size_t i = 0; i < others.size(); ++i) {
    if (i == 5) {
      ASSERT_TRUE(sampler->submit(request({1, 2, 3}, 20, 42), into(outcome)).ok());
    }
    auto other = request({static_cast<int32_t>(i), 4, 5, 6, 7, 8, 9, 10}, 3 + static_cast<int>(i), i);
    other.num_samples = 1 + static_cast<int>(i % 4);
    ASSERT_TRUE(sampler->submit(std::move(other), into(others[i])).ok());
  }
  run(*sampler);
  EXPECT_EQ((*outcome)->sequences[0].tokens, alone.sequences[0].tokens);
  EXPECT_EQ((*outcome)->sequences[0].logprobs, alone.sequences[0].logprobs);
  for (const Outcome& other : others) EXPECT_TRUE(other->ok());
  EXPECT_NE(sample(request({1, 2, 3}, 20, 43)).sequences[0].tokens, alone.sequences[0].tokens);
}

TEST_F(SamplerTest, LogprobsAreTheModelsAtTemperatureOneBeforeTopKAndTopP) {
  auto what = request({1, 2}, 8, 7);
  what.params.temperature = 0.5F;
  what.params.top_k = 3;
  what.params.top_p = 0.9F;
  const SampledSequence output = sample(what).sequences[0];
  FakeEngine::History history = {1, 2};
  ASSERT_EQ(output.logprobs.size(), output.tokens.size());
  for (size_t i = 0; i < output.tokens.size(); ++i) {
    EXPECT_NEAR(output.logprobs[i], engine_.log_probability(std::nullopt, history, output.tokens[i]), 1e-5);
    history.push_back(output.tokens[i]);
  }
}

TEST_F(SamplerTest, PromptHasOneLogprobPerTokenHoweverItIsSplit) {
  auto what = request({3, 1, 4, 1, 5, 9, 2, 6, 5, 3}, 1);
  what.prompt_logprobs = true;
  what.topk_prompt_logprobs = 2;
  const auto sampler = make(/*batch_tokens=*/3);
  Outcome outcome;
  ASSERT_TRUE(sampler->submit(what, into(outcome)).ok());
  run(*sampler);
  const SampleResult& result = **outcome;
  EXPECT_EQ(engine_.step_tokens, (std::vector<size_t>{3, 3, 3, 1}));
  ASSERT_EQ(result.prompt_logprobs.size(), what.prompt.size());
  ASSERT_EQ(result.topk_prompt_logprobs.size(), what.prompt.size());
  EXPECT_TRUE(std::isnan(result.prompt_logprobs[0]));
  EXPECT_TRUE(result.topk_prompt_logprobs[0].empty());
  for (size_t i = 1; i < what.prompt.size(); ++i) {
    const FakeEngine::History history(what.prompt.begin(), what.prompt.begin() + static_cast<ptrdiff_t>(i));
    EXPECT_NEAR(result.prompt_logprobs[i], engine_.log_probability(std::nullopt, history, what.prompt[i]), 1e-5);
    const auto& top = result.topk_prompt_logprobs[i];
    ASSERT_EQ(top.size(), 2U);
    EXPECT_GE(top[0].logprob, top[1].logprob);
    EXPECT_NEAR(top[0].logprob, engine_.log_probability(std::nullopt, history, top[0].token), 1e-5);
  }
}

TEST_F(SamplerTest, SampledTokensComeWithTheirAlternatives) {
  auto what = request({1, 2}, 6, 7);
  what.num_samples = 2;
  what.topk_logprobs = 3;
  for (const SampledSequence& output : sample(what).sequences) {
    FakeEngine::History history = {1, 2};
    ASSERT_EQ(output.topk_logprobs.size(), output.tokens.size());
    for (size_t i = 0; i < output.tokens.size(); ++i) {
      const auto& top = output.topk_logprobs[i];
      ASSERT_EQ(top.size(), 3U);
      EXPECT_GE(top[0].logprob, output.logprobs[i]);
      EXPECT_GE(top[1].logprob, top[2].logprob);
      EXPECT_NEAR(top[0].logprob, engine_.log_probability(std::nullopt, history, top[0].token), 1e-5);
      history.push_back(output.tokens[i]);
    }
  }
  what.topk_logprobs = 0;
  EXPECT_TRUE(sample(what).sequences[0].topk_logprobs.empty());
}

TEST_F(SamplerTest, TokensAreStreamedInOrderBeforeTheAnswer) {
  const auto sampler = make(/*batch_tokens=*/4, /*sequences_max=*/2);
  std::vector<SampledSequence> streamed(3);
  auto what = request({1, 2, 3, 4, 5}, 9, 3);
  what.num_samples = 3;
  what.topk_logprobs = 2;
  what.on_tokens = [&](int index, std::span<const int32_t> tokens, std::span<const float> logprobs,
                       std::span<const std::vector<TokenLogprob>> topk) {
    auto& output = streamed[static_cast<size_t>(index)];
    for (const auto& row : topk) output.topk_logprobs.push_back(row);
    output.tokens.insert(output.tokens.end(), tokens.begin(), tokens.end());
    output.logprobs.insert(output.logprobs.end(), logprobs.begin(), logprobs.end());
  };
  Outcome outcome;
  ASSERT_TRUE(sampler->submit(what, into(outcome)).ok());
  sampler->step();
  EXPECT_TRUE(streamed[0].tokens.empty());
  sampler->step();
  EXPECT_EQ(streamed[0].tokens.size(), 1U) << "a token is handed out in the step that drew it";
  run(*sampler);
  ASSERT_TRUE(outcome->ok());
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(streamed[i].tokens, (*outcome)->sequences[i].tokens);
    EXPECT_EQ(streamed[i].logprobs, (*outcome)->sequences[i].logprobs);
    ASSERT_EQ(streamed[i].topk_logprobs.size(), streamed[i].tokens.size());
    EXPECT_EQ(streamed[i].topk_logprobs.back()[1].token, (*outcome)->sequences[i].topk_logprobs.back()[1].token);
  }
}

TEST_F(SamplerTest, EndsAtStopTokensOfTheRequestAndOfTheModel) {
  engine_.model_function = counting;
  auto what = request({1}, 10);
  what.params.stop_tokens = {4, 9};
  SampledSequence output = sample(what).sequences[0];
  EXPECT_EQ(output.tokens, (std::vector<int32_t>{2, 3, 4}));
  EXPECT_EQ(output.reason, StopReason::kStop);
  engine_.model_spec().eos_token_ids = {3};
  output = sample(what).sequences[0];
  EXPECT_EQ(output.tokens, (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(output.reason, StopReason::kStop);
  what.params.ends_at_eos = false;
  EXPECT_EQ(sample(what).sequences[0].tokens, (std::vector<int32_t>{2, 3, 4}));
  what.params.stop_tokens.clear();
  output = sample(what).sequences[0];
  EXPECT_EQ(output.tokens.size(), 10U);
  EXPECT_EQ(output.reason, StopReason::kLength);
}

TEST_F(SamplerTest, AStopStringOverSeveralTokensEndsTheSample) {
  engine_.model_function = counting;
  auto what = request({1}, 10);
  what.params.stop_strings = {"zz", "efg"};
  const SampledSequence output = sample(what).sequences[0];
  EXPECT_EQ(output.tokens, (std::vector<int32_t>{2, 3, 4, 5, 6}));
  EXPECT_EQ(output.reason, StopReason::kStop);
  what.params.stop_strings = {"ba"};  // the prompt has "b"; only the output counts
  EXPECT_EQ(sample(what).sequences[0].reason, StopReason::kLength);
}

TEST_F(SamplerTest, EndsAtMaxTokensAndAtTheContextLimit) {
  engine_.model_function = counting;
  SampledSequence output = sample(request({1, 2}, 5)).sequences[0];
  EXPECT_EQ(output.tokens.size(), 5U);
  EXPECT_EQ(output.reason, StopReason::kLength);
  EXPECT_EQ(sample(request({1, 2}, 1000)).sequences[0].tokens.size(), 38U);
  auto unlimited = request({1, 2}, 0);
  unlimited.params.max_tokens.reset();
  EXPECT_EQ(sample(unlimited).sequences[0].tokens.size(), 38U);
  EXPECT_TRUE(sample(request({1, 2}, 0)).sequences[0].tokens.empty());
  auto full = request(std::vector<int32_t>(40, 1), 3);
  full.prompt_logprobs = true;
  const SampleResult result = sample(full);
  EXPECT_EQ(result.prompt_logprobs.size(), 40U);
  EXPECT_TRUE(result.sequences[0].tokens.empty());
}

TEST_F(SamplerTest, SeveralSamplesShareOnePrefillAndDiffer) {
  auto what = request({1, 2, 3, 4, 5}, 8, 5);
  what.num_samples = 4;
  const SampleResult result = sample(what);
  ASSERT_EQ(result.sequences.size(), 4U);
  EXPECT_EQ(engine_.forks, 3);
  EXPECT_EQ(engine_.step_tokens.front(), 5U);
  EXPECT_EQ(engine_.step_tokens.size(), 8U);
  EXPECT_NE(result.sequences[0].tokens, result.sequences[1].tokens);
  EXPECT_NE(result.sequences[2].tokens, result.sequences[3].tokens);
  EXPECT_EQ(result.sequences[0].tokens, sample(request({1, 2, 3, 4, 5}, 8, 5)).sequences[0].tokens);
}

TEST_F(SamplerTest, MoreSamplesThanPlacesRunOneAfterTheOther) {
  auto what = request({1, 2, 3}, 6, 5);
  what.num_samples = 7;
  const SampleResult wide = sample(what);
  for (const int places : {1, 2, 3}) {
    const auto sampler = make(64, places);
    Outcome outcome;
    ASSERT_TRUE(sampler->submit(what, into(outcome)).ok());
    run(*sampler);
    ASSERT_TRUE(outcome->ok());
    for (size_t i = 0; i < 7; ++i) EXPECT_EQ((*outcome)->sequences[i].tokens, wide.sequences[i].tokens);
  }
}

TEST_F(SamplerTest, RunningSequencesContinueDuringALongPrompt) {
  const auto sampler = make(/*batch_tokens=*/4);
  Outcome first;
  Outcome second;
  ASSERT_TRUE(sampler->submit(request({1}, 12), into(first)).ok());
  sampler->step();
  ASSERT_TRUE(sampler->submit(request(std::vector<int32_t>(9, 2), 1), into(second)).ok());
  for (int i = 0; i < 3; ++i) sampler->step();
  EXPECT_EQ(engine_.step_tokens, (std::vector<size_t>{1, 4, 4, 4}));
  EXPECT_TRUE(second.has_value());
  EXPECT_FALSE(first.has_value());
  run(*sampler);
  EXPECT_EQ((*first)->sequences[0].tokens.size(), 12U);
}

TEST_F(SamplerTest, CancelAnswersAtOnceAndFreesTheSequences) {
  const auto sampler = make(64, /*sequences_max=*/1);
  Outcome running;
  Outcome queued;
  auto what = request({1}, 30);
  what.num_samples = 2;
  const auto first = sampler->submit(what, into(running));
  const auto second = sampler->submit(request({2}, 30), into(queued));
  sampler->step();
  sampler->step();
  EXPECT_EQ(sampler->running(), 1);
  EXPECT_EQ(sampler->waiting(), 1);
  sampler->cancel(*first);
  sampler->cancel(*second);
  sampler->cancel(*second);
  sampler->cancel(999);
  ASSERT_TRUE(running.has_value() && queued.has_value());
  EXPECT_EQ(running->error().code, ErrorCode::kCancelled);
  EXPECT_EQ(queued->error().code, ErrorCode::kCancelled);
  EXPECT_TRUE(sampler->idle());
  EXPECT_EQ(engine_.open_sequences(), 0U);
}

TEST_F(SamplerTest, AFullQueueRefusesAndNamesItsLimit) {
  const auto sampler = make(64, 64, /*queue_max=*/2);
  Outcome outcomes[2];
  for (Outcome& outcome : outcomes) ASSERT_TRUE(sampler->submit(request({1}, 2), into(outcome)).ok());
  const auto third = sampler->submit(request({1}, 2), [](auto) {});
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(third.error().message.find("2 requests"), std::string::npos);
  run(*sampler);
}

TEST_F(SamplerTest, FailingStepFailsOnlyItsRequests) {
  const auto sampler = make(64, /*sequences_max=*/1);
  Outcome first;
  Outcome second;
  ASSERT_TRUE(sampler->submit(request({1}, 5), into(first)).ok());
  ASSERT_TRUE(sampler->submit(request({2}, 5), into(second)).ok());
  int steps = 0;
  engine_.before_step = [&](auto) { return ++steps == 3 ? Status(internal_error("broken")) : Status(); };
  run(*sampler);
  EXPECT_EQ(first->error().message, "broken");
  EXPECT_TRUE(second->ok());
  EXPECT_EQ(engine_.open_sequences(), 0U);
}

TEST_F(SamplerTest, NonFiniteLogitsFailOnlyTheirRequest) {
  engine_.model_function = [](const auto&, const FakeEngine::History& history) {
    auto logits = counting({}, history);
    if (history.front() == 1 && history.size() > 3) logits[2] = NAN;
    return logits;
  };
  const auto sampler = make();
  Outcome bad;
  Outcome good;
  ASSERT_TRUE(sampler->submit(request({1}, 8), into(bad)).ok());
  ASSERT_TRUE(sampler->submit(request({2}, 8), into(good)).ok());
  run(*sampler);
  EXPECT_EQ(bad->error().reason, "nonfinite_logits");
  EXPECT_FALSE(is_user_error(bad->error().code)) << "these are the server's weights";
  EXPECT_TRUE(good->ok());
}

TEST_F(SamplerTest, AnAdaptersLogitsThatAreNotFiniteAreItsUsersFault) {
  ASSERT_TRUE(engine_.adapters().create(AdapterId("broken"), {}).ok());
  engine_.model_function = [](const auto&, const auto&) { return std::vector<float>(16, NAN); };
  const auto sampler = make();
  Outcome bad;
  auto what = request({1}, 8);
  what.adapter = AdapterId("broken");
  ASSERT_TRUE(sampler->submit(what, into(bad)).ok());
  run(*sampler);
  EXPECT_EQ(bad->error().reason, "nonfinite_logits");
  EXPECT_TRUE(is_user_error(bad->error().code));
}

TEST_F(SamplerTest, CallbacksMaySubmitAndCancel) {
  const auto sampler = make();
  Outcome second;
  Outcome third;
  uint64_t third_number = 0;
  ASSERT_TRUE(sampler
                  ->submit(request({1}, 2),
                           [&](const Result<SampleResult>&) {
                             ASSERT_TRUE(sampler->submit(request({2}, 2), into(second)).ok());
                             sampler->cancel(third_number);
                           })
                  .ok());
  third_number = *sampler->submit(request({3}, 20), into(third));
  run(*sampler);
  EXPECT_TRUE(second->ok());
  EXPECT_EQ(third->error().code, ErrorCode::kCancelled);
}

TEST_F(SamplerTest, TimesAreSplitAtTheFirstPromptTokenAndTheFirstSampledOne) {
  const auto sampler = make(/*batch_tokens=*/2);
  Outcome outcome;
  ASSERT_TRUE(sampler->submit(request({1, 2, 3, 4}, 3), into(outcome)).ok());
  clock_.advance(5 * kSecond);
  engine_.before_step = [&](auto) { return clock_.advance(kSecond), Status(); };
  run(*sampler);
  EXPECT_DOUBLE_EQ((*outcome)->times.queue_seconds(), 5.0);
  EXPECT_DOUBLE_EQ((*outcome)->times.prefill_seconds(), 2.0);
  EXPECT_DOUBLE_EQ((*outcome)->times.decode_seconds(), 2.0);
}

TEST_F(SamplerTest, RefusalsNameTheFieldAndItsAllowedValues) {
  const auto expect = [&](SampleRequest what, const char* field) {
    const Error error = refused(std::move(what));
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument) << field;
    EXPECT_NE(error.message.find(field), std::string::npos) << error.message;
  };
  expect(request({}, 1), "prompt");
  expect(request({16}, 1), "prompt position 0");
  expect(request({1, -1}, 1), "prompt position 1");
  expect(request(std::vector<int32_t>(41, 1), 1), "limit is 40");
  expect(request({1}, -1), "max_tokens");
  const auto with = [&](auto change) {
    auto what = request({1}, 1);
    change(what);
    return what;
  };
  expect(with([](auto& w) { w.num_samples = 0; }), "num_samples");
  expect(with([](auto& w) { w.num_samples = kSamplesMax + 1; }), "num_samples");
  expect(with([](auto& w) { w.topk_prompt_logprobs = 17; }), "topk_prompt_logprobs");
  expect(with([](auto& w) { w.topk_logprobs = -1; }), "topk_logprobs");
  expect(with([](auto& w) { w.params.temperature = -0.1F; }), "temperature");
  expect(with([](auto& w) { w.params.temperature = NAN; }), "temperature");
  expect(with([](auto& w) { w.params.top_k = -2; }), "top_k");
  expect(with([](auto& w) { w.params.top_p = 0; }), "top_p");
  expect(with([](auto& w) { w.params.top_p = 1.5F; }), "top_p");
  expect(with([](auto& w) { w.params.stop_strings = {""}; }), "stop");
  expect(with([](auto& w) { w.params.stop_strings.assign(65, "x"); }), "stop");
  EXPECT_EQ(refused(with([](auto& w) { w.adapter = AdapterId("gone"); })).code, ErrorCode::kNotFound);
}

TEST_F(SamplerTest, StopStringsNeedTheTextOfTokens) {
  const auto sampler = make_sampler(engine_.model(), engine_.adapters(), engine_.decoding(),
                                    {.batch_tokens = 8, .tokens_max = 8}, {}, clock_);
  auto what = request({1}, 1);
  what.params.stop_strings = {"x"};
  const auto number = sampler->submit(what, [](auto) {});
  ASSERT_FALSE(number.ok());
  EXPECT_EQ(number.error().reason, "no_tokenizer");
}

}  // namespace
}  // namespace tuft::engine
