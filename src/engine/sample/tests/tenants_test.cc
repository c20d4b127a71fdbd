// Tests that tenants share the sampler: places, tokens of a step and blocks of the KV cache.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/model_cost.h"
#include "engine/sample/sampler.h"
#include "engine/tests/fake_engine.h"

namespace tuft::engine {
namespace {

using testing::FakeEngine;
using Outcome = std::optional<Result<SampleResult>>;

// Blocks have 4 positions.
class SamplerTenantsTest : public ::testing::Test {
 protected:
  void make(int64_t blocks, int batch_tokens = 256, int sequences_max = 256) {
    sampler_.reset();
    engine_ = std::make_unique<FakeEngine>(16, blocks);
    if (heads_ == 0) engine_->model_spec().intermediate_size = 1 << 20;
    if (heads_ > 0) engine_->model_spec().heads = heads_;
    SamplerOptions options;
    options.batch_tokens = batch_tokens;
    options.sequences_max = sequences_max;
    options.tokens_max = 700;
    options.queue_max = 1000;
    sampler_ = make_sampler(engine_->model(), engine_->adapters(), engine_->decoding(), options, {}, clock_);
  }
  // From now on a step takes `fixed` microseconds, one more for each token, three more for each scored row, and one
  // more for each ModelCost::positions_per_token() positions that tokens attend to.
  void steps_take(int fixed) {
    engine_->before_step = [this, fixed](std::span<const Feed> feeds) -> Status {
      Nanos micros = fixed;
      for (const Feed& feed : feeds) {
        const size_t tokens = feed.tokens.size();
        micros += static_cast<Nanos>(tokens) + (feed.logits > 1 ? 3 * feed.logits : 0);
        const size_t pairs = tokens * engine_->length(feed.sequence) + tokens * (tokens + 1) / 2;
        micros += static_cast<Nanos>(pairs) / ModelCost(engine_->model()).positions_per_token();
      }
      clock_.advance(micros * kMicrosecond);
      return {};
    };
  }
  // Returns the tokens of the longest of the steps that the light tenant's sample of ten tokens takes beside a heavy
  // one.
  size_t longest_step_beside(int heavy_samples) {
    for (int i = 0; i < 4; ++i) submit(request("heavy", 3, 600, heavy_samples / 4), heavy_[i]);
    steps(20);
    submit(request("light", 3, 10), light_);
    const size_t before = engine_->step_tokens.size();
    EXPECT_EQ(steps_until(light_), 10);
    return *std::max_element(engine_->step_tokens.begin() + static_cast<ptrdiff_t>(before), engine_->step_tokens.end());
  }
  // No two requests share a block of their prompts.
  SampleRequest request(const std::string& tenant, int prompt, int max_tokens, int samples = 1) {
    SampleRequest what;
    what.scope = tenant;
    what.params.seed = ++requests_;
    for (int i = 0; i < prompt; ++i) what.prompt.push_back(static_cast<int32_t>((requests_ >> (4 * (i % 3))) % 16));
    what.num_samples = samples;
    what.params.max_tokens = max_tokens;
    return what;
  }
  static Sampler::Done into(Outcome& outcome) {
    return [&outcome](Result<SampleResult> result) { outcome.emplace(std::move(result)); };
  }
  void submit(SampleRequest what, Outcome& outcome) {
    const auto number = sampler_->submit(std::move(what), into(outcome));
    ASSERT_TRUE(number.ok()) << number.error().message;
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) sampler_->step();
  }
  int steps_until(const Outcome& outcome) {
    int count = 0;
    for (; !outcome && count < 10'000; ++count) sampler_->step();
    return count;
  }
  void finish() {
    for (int i = 0; i < 200'000 && !sampler_->idle(); ++i) sampler_->step();
    ASSERT_TRUE(sampler_->idle());
    EXPECT_EQ(engine_->open_sequences(), 0U);
    EXPECT_EQ(engine_->decoding().kv_usage().used, 0);
  }

  FakeClock clock_;
  int heads_ = 0;  // of the attention; 0: it costs nothing beside the rest. For make()
  uint64_t requests_ = 0;
  std::unique_ptr<FakeEngine> engine_;
  std::unique_ptr<Sampler> sampler_;
  Outcome heavy_[8];
  Outcome light_;
};

TEST_F(SamplerTenantsTest, AllPlacesAreTakenThenAnothersSampleWaitsForNoneOfThem) {
  make(0);
  for (int i = 0; i < 4; ++i) submit(request("heavy", 3, 600, 128), heavy_[i]);
  steps(20);
  EXPECT_EQ(sampler_->running(), 256);
  submit(request("light", 3, 1), light_);
  EXPECT_LE(steps_until(light_), 2);
  EXPECT_TRUE(light_->ok());
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(heavy_[i]);
  finish();
}

TEST_F(SamplerTenantsTest, AnotherTenantGetsAnEqualPartOfPlacesAndTokens) {
  make(0, 64, 16);
  for (int i = 0; i < 2; ++i) submit(request("heavy", 3, 600, 16), heavy_[i]);
  steps(5);
  submit(request("light", 40, 20, 16), light_);
  // Two steps for the prompt, and 20 for each half of the samples.
  EXPECT_LE(steps_until(light_), 2 + 2 * 20 + 2);
  for (const size_t feeds : engine_->step_feeds) EXPECT_LE(feeds, 16U);
  finish();
}

// A step of its own would take 4 + 3 microseconds with the prompt, and 4 + 1 afterwards.
TEST_F(SamplerTenantsTest, StepsTakeAtMostTwiceAsLongAsThoseOfTheLighterTenantAlone) {
  make(0);
  steps_take(4);
  const size_t tokens = longest_step_beside(64);
  EXPECT_EQ(tokens, 2U * 3 + 4);
  EXPECT_EQ(engine_->step_tokens.back(), 2U * 1 + 4);
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(heavy_[i]);
  steps(2);
  EXPECT_EQ(engine_->step_tokens.back(), 64U) << "nobody else is there";
  finish();
}

// Each token of the heavy tenant attends to 28 positions at least 20 times, so that a step with all of them takes more
// than a millisecond. The light tenant's sample takes 4 + 3 and nine times 4 + 1 microseconds alone.
TEST_F(SamplerTenantsTest, SamplesOfALongPromptTakeAPartOfTheTimeNotOfTheTokens) {
  heads_ = 1;
  make(0);
  steps_take(4);
  ASSERT_EQ(ModelCost(engine_->model()).positions_per_token(), 28);
  submit(request("heavy", 560, 600, 64), heavy_[0]);
  steps(20);
  EXPECT_EQ(engine_->step_tokens.back(), 64U);
  submit(request("light", 3, 10), light_);
  const Nanos begin = clock_.monotonic();
  const size_t fed = engine_->fed;
  EXPECT_EQ(steps_until(light_), 10);
  EXPECT_LE(clock_.monotonic() - begin, (2 * (7 + 9 * 5) + 25) * kMicrosecond) << "at most one of its tokens more";
  EXPECT_GE(engine_->fed - fed, 3U + 9 + 2) << "nor is the heavy tenant forgotten";
  steps(2);
  EXPECT_EQ(engine_->step_tokens.back(), 64U) << "nobody else is there";
  finish();
}

// Of 8 tenants, each has a fourth of a token in a step, and each token costs 20 of these.
TEST_F(SamplerTenantsTest, TokensThatCostMoreThanEveryPartOfAStepAreFedInTurns) {
  heads_ = 1;
  make(0, 2, 8);
  steps_take(4);
  for (int i = 0; i < 8; ++i) submit(request("tenant " + std::to_string(i), 560, 20), heavy_[i]);
  int count = 0;
  for (; !sampler_->idle() && count < 200'000; ++count) {
    sampler_->step();
    ASSERT_EQ(engine_->step_tokens.size(), static_cast<size_t>(count) + 1) << "each step feeds somebody";
  }
  finish();
  for (const Outcome& outcome : heavy_) EXPECT_TRUE(outcome && outcome->ok());
}

TEST_F(SamplerTenantsTest, WhereAStepCostsMoreThanItsTokensNobodyPauses) {
  make(0);
  steps_take(1000);
  EXPECT_EQ(longest_step_beside(64), 64U + 3);
  EXPECT_EQ(engine_->step_tokens.back(), 64U + 1);
  finish();
}

TEST_F(SamplerTenantsTest, ScoredPromptsDoNotHideHowLongAStepTakes) {
  make(0);
  steps_take(4);
  auto scored = request("heavy", 600, 600);
  scored.topk_prompt_logprobs = 5;
  submit(scored, heavy_[4]);
  longest_step_beside(64);
  EXPECT_EQ(engine_->step_tokens.back(), 2U * 1 + 4);
  finish();
}

TEST_F(SamplerTenantsTest, LongPromptsOfOneThenAnothersPromptDoesNotWaitForThem) {
  make(0, 16, 64);
  for (int i = 0; i < 8; ++i) submit(request("heavy", 600, 1), heavy_[i]);
  steps(3);
  submit(request("light", 16, 1), light_);
  EXPECT_LE(steps_until(light_), 3);
  finish();
}

TEST_F(SamplerTenantsTest, PromptsWithLogprobsCostMoreOfTheirTenantsPart) {
  make(0, 64, 64);
  auto heavy = request("heavy", 600, 1);
  heavy.topk_prompt_logprobs = 5;
  submit(heavy, heavy_[0]);
  steps(1);
  EXPECT_EQ(engine_->step_tokens.back(), 64U) << "alone it pays nothing";
  submit(request("light", 320, 1), light_);
  EXPECT_LE(steps_until(light_), 10);
  EXPECT_LE(engine_->step_tokens.back(), 32U + 64U / 2 / 4);
  EXPECT_FALSE(heavy_[0]);
  finish();
}

TEST_F(SamplerTenantsTest, AllBlocksAreHeldThenTheLargestTenantReleasesSome) {
  make(200);
  for (int i = 0; i < 4; ++i) submit(request("heavy", 20, 300, 8), heavy_[i]);
  steps(150);
  ASSERT_GT(engine_->decoding().kv_usage().used, 1000) << "of 2000 bytes";
  submit(request("light", 40, 5), light_);
  EXPECT_LE(steps_until(light_), 7);
  EXPECT_EQ((*light_)->preemptions, 0);
  finish();
  EXPECT_EQ((*heavy_[0])->sequences.size(), 8U);
}

// The light tenant would hold more than the heavy one, so it waits; but only for the requests that were there before.
TEST_F(SamplerTenantsTest, ARequestForMostOfTheCacheRunsAlthoughOthersNeverStop) {
  make(100, 64, 64);
  int rounds = 0;
  Sampler::Done again;
  again = [&](Result<SampleResult> result) {
    EXPECT_TRUE(result.ok());
    if (light_ || ++rounds == 10'000) return;
    ASSERT_TRUE(sampler_->submit(request("heavy", 20, 30), again).ok());
  };
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(sampler_->submit(request("heavy", 20, 30), again).ok());
  steps(10);
  submit(request("light", 300, 30), light_);
  EXPECT_LE(steps_until(light_), 400);
  EXPECT_TRUE(light_->ok());
  finish();
}

TEST_F(SamplerTenantsTest, TwoTenantsTakeNoBlocksBackAndForth) {
  const auto preemptions = [&](const char* other) {
    make(64, 64, 64);
    Outcome outcomes[8];
    for (int i = 0; i < 8; ++i) submit(request(i % 2 == 0 ? "one" : other, 20, 200), outcomes[i]);
    finish();
    int count = 0;
    for (const Outcome& outcome : outcomes) count += outcome->value().preemptions;
    return count;
  };
  const int alone = preemptions("one");
  EXPECT_GT(alone, 0);
  EXPECT_LE(preemptions("other"), 2 * alone);
}

// Whatever tenants share, the answers are those of an unlimited cache without others.
TEST_F(SamplerTenantsTest, RandomTenantsThenTheSameAnswersAndNothingIsLeft) {
  std::mt19937 random(77);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 1600; ++round) {
    std::vector<SampleRequest> requests;
    for (int i = 0; i < 16; ++i) {
      auto what =
          request(std::string(static_cast<size_t>(1 + below(3)), 't'), 1 + below(18), 1 + below(19), 1 + below(4));
      what.prompt_logprobs = below(4) == 0;
      what.topk_prompt_logprobs = below(4) == 0 ? 3 : 0;
      requests.push_back(std::move(what));
    }
    std::vector<SampleResult> expected;
    make(0);
    for (const auto& what : requests) {
      Outcome outcome;
      submit(what, outcome);
      finish();
      expected.push_back(std::move(*outcome).value());
    }
    heads_ = below(2) == 0 ? 0 : 1 << below(5);
    make(9 + below(14), 1 + below(20), 1 + below(9));
    std::vector<Outcome> outcomes(requests.size());
    std::vector<Sampler::RequestNumber> numbers;
    for (size_t i = 0; i < requests.size(); ++i) {
      numbers.push_back(*sampler_->submit(requests[i], into(outcomes[i])));
      steps(below(6));
      if (below(6) == 0) sampler_->cancel(numbers[random() % numbers.size()]);
    }
    finish();
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE("round " + std::to_string(round) + ", request " + std::to_string(i));
      ASSERT_TRUE(outcomes[i].has_value());
      if (!outcomes[i]->ok()) {
        EXPECT_EQ(outcomes[i]->error().code, ErrorCode::kCancelled) << outcomes[i]->error().message;
        continue;
      }
      for (size_t k = 0; k < expected[i].sequences.size(); ++k) {
        EXPECT_EQ((*outcomes[i])->sequences[k].tokens, expected[i].sequences[k].tokens);
        EXPECT_EQ((*outcomes[i])->sequences[k].logprobs, expected[i].sequences[k].logprobs);
      }
    }
  }
}

}  // namespace
}  // namespace tuft::engine
