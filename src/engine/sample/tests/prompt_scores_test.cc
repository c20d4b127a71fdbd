#include "engine/sample/prompt_scores.h"

#include <cmath>

#include <gtest/gtest.h>

#include "engine/tests/fake_engine.h"

namespace tuft::engine {
namespace {

using testing::FakeEngine;
using Outcome = std::optional<Result<SampleResult>>;

const std::vector<int32_t> kPrompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7};

class PromptScores : public ::testing::Test {
 protected:
  std::unique_ptr<Sampler> make(int batch_tokens = 64) {
    SamplerOptions options;
    options.batch_tokens = batch_tokens;
    options.tokens_max = 40;
    return make_sampler(engine_.model(), engine_.adapters(), engine_.decoding(), options, {}, clock_);
  }
  static SampleRequest request() {
    SampleRequest result;
    result.prompt = kPrompt;
    result.params.max_tokens = 1;
    result.params.seed = 7;
    return result;
  }
  // The tokens of each row, which are about positions 1, 2, ...
  static PromptTargets targets(const std::vector<std::vector<int32_t>>& rows) {
    PromptTargets result;
    result.row_begins = {0};
    for (const auto& row : rows) {
      result.tokens.insert(result.tokens.end(), row.begin(), row.end());
      result.row_begins.push_back(result.tokens.size());
    }
    return result;
  }
  static void submit(Sampler& sampler, SampleRequest what, Outcome& outcome) {
    const auto number = sampler.submit(std::move(what),
                                       [&outcome](Result<SampleResult> result) { outcome.emplace(std::move(result)); });
    ASSERT_TRUE(number.ok()) << number.error().message;
  }
  SampleResult sample(SampleRequest what, int batch_tokens = 64) {
    const auto sampler = make(batch_tokens);
    Outcome outcome;
    submit(*sampler, std::move(what), outcome);
    for (int i = 0; i < 1000 && !sampler->idle(); ++i) sampler->step();
    EXPECT_TRUE(outcome.has_value() && outcome->ok());
    return **outcome;
  }
  std::string refusal(SampleRequest what) {
    const auto number = make()->submit(std::move(what), [](auto) {});
    return number.ok() ? "" : number.error().message;
  }
  float expected(size_t position, int32_t token) const {
    const FakeEngine::History history(kPrompt.begin(), kPrompt.begin() + static_cast<ptrdiff_t>(position));
    return engine_.log_probability(std::nullopt, history, token);
  }

  FakeEngine engine_{16};
  FakeClock clock_;
};

TEST_F(PromptScores, OnlyTheLastPositionsAreScored) {
  auto what = request();
  what.prompt_logprobs = true;
  what.topk_prompt_logprobs = 2;
  what.prompt_logprobs_last_n = 5;
  for (const int batch_tokens : {64, 3}) {
    const SampleResult result = sample(what, batch_tokens);
    ASSERT_EQ(result.prompt_logprobs.size(), kPrompt.size());
    ASSERT_EQ(result.topk_prompt_logprobs.size(), kPrompt.size());
    for (size_t i = 0; i < kPrompt.size(); ++i) {
      const bool scored = i >= kPrompt.size() - 5;
      EXPECT_EQ(std::isnan(result.prompt_logprobs[i]), !scored);
      EXPECT_EQ(result.topk_prompt_logprobs[i].size(), scored ? 2U : 0U);
      if (scored) {
        EXPECT_NEAR(result.prompt_logprobs[i], expected(i, kPrompt[i]), 1e-5);
      }
    }
  }
}

TEST_F(PromptScores, ThePrefixBeforeTheScoredPositionsComesFromTheCache) {
  (void)sample(request());
  engine_.fed = engine_.adopted = 0;
  auto what = request();
  what.prompt_logprobs = true;
  what.prompt_logprobs_last_n = 5;  // position 9 needs the logits of token 8
  SampleResult result = sample(what);
  EXPECT_EQ(result.cached_tokens, 8);
  EXPECT_EQ(engine_.adopted, 8U);
  EXPECT_EQ(engine_.fed, kPrompt.size() - 8);
  EXPECT_NEAR(result.prompt_logprobs[9], expected(9, kPrompt[9]), 1e-5);
  what.prompt_logprobs_last_n = 6;  // position 8 needs the logits of token 7, which is in the second block
  EXPECT_EQ(sample(what).cached_tokens, 4);
  what.prompt_logprobs_last_n = 0;
  EXPECT_EQ(sample(what).cached_tokens, 0);
}

TEST_F(PromptScores, TargetsAreScoredWhereTheyAreNamed) {
  std::vector<std::vector<int32_t>> rows(kPrompt.size() - 1);
  rows[6] = {2, -1, 15};
  rows[12] = {0};
  auto what = request();
  what.prompt_targets = targets(rows);
  (void)sample(request());
  for (const int batch_tokens : {64, 2}) {
    const SampleResult result = sample(what, batch_tokens);
    ASSERT_EQ(result.target_logprobs.size(), 4U);
    EXPECT_NEAR(result.target_logprobs[0], expected(7, 2), 1e-5);
    EXPECT_EQ(result.target_logprobs[1], 0.0F);
    EXPECT_NEAR(result.target_logprobs[2], expected(7, 15), 1e-5);
    EXPECT_NEAR(result.target_logprobs[3], expected(13, 0), 1e-5);
    EXPECT_EQ(result.cached_tokens, 4) << "rows before the first target need not be computed";
    EXPECT_TRUE(result.prompt_logprobs.empty() && result.prompt_alt_tokens.empty());
  }
}

TEST_F(PromptScores, ATargetWidensWhatIsComputedButNotThePromptLogprobs) {
  std::vector<std::vector<int32_t>> rows(kPrompt.size() - 1);
  rows[1] = {4};
  auto what = request();
  what.prompt_targets = targets(rows);
  what.prompt_logprobs = true;
  what.prompt_logprobs_last_n = 2;
  const SampleResult result = sample(what, 5);
  EXPECT_NEAR(result.target_logprobs[0], expected(2, 4), 1e-5);
  ASSERT_EQ(result.prompt_logprobs.size(), kPrompt.size());
  EXPECT_TRUE(std::isnan(result.prompt_logprobs[11]));
  EXPECT_NEAR(result.prompt_logprobs[12], expected(12, kPrompt[12]), 1e-5);
}

TEST_F(PromptScores, AlternativesAreDrawnAtTheRequestsTemperatureWithTheModelsLogprobs) {
  auto what = request();
  what.prompt_alt_tokens = 400;
  what.params.temperature = 0.25F;
  what.params.top_k = 1;  // not of the alternatives
  const SampleResult result = sample(what, 3);
  ASSERT_EQ(result.prompt_alt_tokens.size(), (kPrompt.size() - 1) * 400);
  std::vector<int> counts(16);
  for (size_t i = 0; i < result.prompt_alt_tokens.size(); ++i) {
    const TokenLogprob& drawn = result.prompt_alt_tokens[i];
    EXPECT_NEAR(drawn.logprob, expected(1 + i / 400, drawn.token), 1e-5);
    if (i / 400 == 4) ++counts[static_cast<size_t>(drawn.token)];
  }
  double sum = 0;
  for (int32_t token = 0; token < 16; ++token) sum += std::exp(4.0 * static_cast<double>(expected(5, token)));
  for (int32_t token = 0; token < 16; ++token) {
    const double probability = std::exp(4.0 * static_cast<double>(expected(5, token))) / sum;
    EXPECT_NEAR(counts[static_cast<size_t>(token)] / 400.0, probability, 0.11);
  }
  const SampleResult again = sample(what);
  for (size_t i = 0; i < result.prompt_alt_tokens.size(); ++i) {
    ASSERT_EQ(result.prompt_alt_tokens[i].token, again.prompt_alt_tokens[i].token);
  }
  what.params.temperature = 0;
  const SampleResult greedy = sample(what);
  EXPECT_EQ(greedy.prompt_alt_tokens[0].token, greedy.prompt_alt_tokens[399].token);
}

TEST_F(PromptScores, ScoresDoNotChangeWhatIsSampled) {
  auto plain = request();
  plain.params.max_tokens = 6;
  auto what = plain;
  what.prompt_alt_tokens = 3;
  what.prompt_logprobs = true;
  EXPECT_EQ(sample(what).sequences[0].tokens, sample(plain).sequences[0].tokens);
}

TEST_F(PromptScores, ScoredTokensCostMoreOfATenantsPart) {
  Request request;
  request.what.prompt = kPrompt;
  begin_prompt_scores(request);
  EXPECT_EQ(request.prompt_cost(0, 14), 14U);
  request.what.prompt_logprobs = true;
  request.what.prompt_logprobs_last_n = 4;  // tokens 9 to 13 have rows
  begin_prompt_scores(request);
  EXPECT_EQ(request.prompt_cost(0, 14), 9 + 5 * kRowCost);
  EXPECT_EQ(request.prompt_cost(8, 3), 1 + 2 * kRowCost);
  EXPECT_EQ(request.prompt_cost(11, 3), 3 * kRowCost);
  request.what.prompt_logprobs_last_n = 0;
  begin_prompt_scores(request);
  EXPECT_EQ(request.prompt_cost(0, 14), 14 * kRowCost);
}

TEST_F(PromptScores, RefusalsNameTheField) {
  auto what = request();
  what.prompt_logprobs_last_n = static_cast<int>(kPrompt.size());
  EXPECT_NE(refusal(what).find("prompt_logprobs_last_n"), std::string::npos);
  what = request();
  what.prompt_alt_tokens = 1025;
  EXPECT_NE(refusal(what).find("prompt_alt_tokens_k"), std::string::npos);
  what = request();
  what.prompt_targets = targets({{1}, {2}});
  EXPECT_NE(refusal(what).find("target_prompt_logprobs"), std::string::npos);
  std::vector<std::vector<int32_t>> rows(kPrompt.size() - 1);
  rows[3] = {-1, 16};
  what.prompt_targets = targets(rows);
  EXPECT_NE(refusal(what).find("value 1 is not in the vocabulary"), std::string::npos);
}

}  // namespace
}  // namespace tuft::engine
