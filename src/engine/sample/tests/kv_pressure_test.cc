// Tests sampling when the KV cache is small, shared and reused: results equal those with an unlimited cache, the oldest
// request always continues, and no block is leaked.
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "engine/sample/sampler.h"
#include "engine/tests/fake_engine.h"
#include "telemetry/testing/recorded_metrics.h"

namespace tuft::engine {
namespace {

using telemetry::testing::RecordedMetrics;
using testing::FakeEngine;
using Outcome = std::optional<Result<SampleResult>>;

// Blocks have 4 positions.
class KvPressureTest : public ::testing::Test {
 protected:
  void make(int64_t blocks, int batch_tokens = 64, int sequences_max = 64, int tokens_max = 60) {
    sampler_.reset();
    engine_ = std::make_unique<FakeEngine>(16, blocks);
    for (const char* name : {"a", "b"}) EXPECT_TRUE(engine_->adapters().create(AdapterId(name), {}).ok());
    SamplerOptions options;
    options.batch_tokens = batch_tokens;
    options.sequences_max = sequences_max;
    options.tokens_max = tokens_max;
    options.base_model = "pressed";
    sampler_ = make_sampler(engine_->model(), engine_->adapters(), engine_->decoding(), options, {}, clock_);
  }
  static SampleRequest request(std::vector<int32_t> prompt, int max_tokens, uint64_t seed = 1) {
    SampleRequest what;
    what.prompt = std::move(prompt);
    what.params.max_tokens = max_tokens;
    what.params.seed = seed;
    return what;
  }
  static Sampler::Done into(Outcome& outcome) {
    return [&outcome](Result<SampleResult> result) { outcome.emplace(std::move(result)); };
  }
  void submit(SampleRequest what, Outcome& outcome) {
    const auto number = sampler_->submit(std::move(what), into(outcome));
    ASSERT_TRUE(number.ok()) << number.error().message;
  }
  void run() {
    for (int i = 0; i < 20000 && !sampler_->idle(); ++i) sampler_->step();
    ASSERT_TRUE(sampler_->idle());
    expect_nothing_held();
  }
  void expect_nothing_held() {
    EXPECT_EQ(engine_->open_sequences(), 0U);
    EXPECT_EQ(engine_->decoding().kv_usage().used, 0);
  }
  SampleResult sample(SampleRequest what) {
    Outcome outcome;
    submit(std::move(what), outcome);
    run();
    return outcome->value();
  }
  static void expect_same(const SampleResult& left, const SampleResult& right) {
    ASSERT_EQ(left.sequences.size(), right.sequences.size());
    for (size_t i = 0; i < left.sequences.size(); ++i) {
      EXPECT_EQ(left.sequences[i].tokens, right.sequences[i].tokens);
      EXPECT_EQ(left.sequences[i].logprobs, right.sequences[i].logprobs);
      EXPECT_EQ(left.sequences[i].reason, right.sequences[i].reason);
    }
    ASSERT_EQ(left.prompt_logprobs.size(), right.prompt_logprobs.size());
    for (size_t i = 1; i < left.prompt_logprobs.size(); ++i) {
      EXPECT_EQ(left.prompt_logprobs[i], right.prompt_logprobs[i]);
    }
    ASSERT_EQ(left.topk_prompt_logprobs.size(), right.topk_prompt_logprobs.size());
    for (size_t i = 0; i < left.topk_prompt_logprobs.size(); ++i) {
      ASSERT_EQ(left.topk_prompt_logprobs[i].size(), right.topk_prompt_logprobs[i].size());
      for (size_t k = 0; k < left.topk_prompt_logprobs[i].size(); ++k) {
        EXPECT_EQ(left.topk_prompt_logprobs[i][k].token, right.topk_prompt_logprobs[i][k].token);
        EXPECT_EQ(left.topk_prompt_logprobs[i][k].logprob, right.topk_prompt_logprobs[i][k].logprob);
      }
    }
  }

  RecordedMetrics metrics_;
  const RecordedMetrics::LabelList model_ = {{"base_model", "pressed"}};
  FakeClock clock_;
  std::unique_ptr<FakeEngine> engine_;
  std::unique_ptr<Sampler> sampler_;
};

TEST_F(KvPressureTest, YoungestIsPreemptedAndBothEndAsIfAlone) {
  make(100);
  const SampleResult first = sample(request({1, 2, 3}, 20, 1));
  const SampleResult second = sample(request({4, 5, 6}, 20, 2));
  make(7);  // 28 tokens; each needs 22
  Outcome outcomes[2];
  submit(request({1, 2, 3}, 20, 1), outcomes[0]);
  submit(request({4, 5, 6}, 20, 2), outcomes[1]);
  engine_->before_step = [&](auto) { return clock_.advance(kSecond), Status(); };
  run();
  expect_same(**outcomes[0], first);
  expect_same(**outcomes[1], second);
  EXPECT_EQ((*outcomes[0])->preemptions, 0) << "the oldest always goes on";
  EXPECT_GE((*outcomes[1])->preemptions, 1);
  EXPECT_LT((*outcomes[0])->times.ended, (*outcomes[1])->times.ended);
  const auto& interruptions = (*outcomes[1])->interruptions;
  ASSERT_FALSE(interruptions.empty());
  EXPECT_GT(interruptions[0].resumed, interruptions[0].preempted);
  EXPECT_GT(interruptions[0].tokens, 3);
  EXPECT_EQ(metrics_.counter("tuft.scheduler.preemptions", model_), (*outcomes[1])->preemptions);
  EXPECT_GT(metrics_.counter("tuft.scheduler.preempted.tokens", model_), 0);
}

TEST_F(KvPressureTest, AllBlocksAreUsedBeforeAPreemption) {
  make(12);
  Outcome outcomes[4];
  for (int i = 0; i < 4; ++i) submit(request({i, 1, 2}, 10, 1), outcomes[i]);  // 12 tokens, 3 blocks each
  run();
  EXPECT_EQ(metrics_.counter("tuft.scheduler.preemptions", model_), 0);
  EXPECT_EQ(engine_->step_feeds.size(), 10U) << "all four at once";
}

TEST_F(KvPressureTest, RequestThatNeverFitsIsRefusedWithTheLimit) {
  make(5);
  const auto refused = sampler_->submit(request({1, 2, 3}, 19), [](auto) {});  // 3 + 18 in the cache
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().reason, "kv_cache_limit");
  EXPECT_NE(refused.error().message.find("kv_cache_bytes is 50"), std::string::npos) << refused.error().message;
  EXPECT_FALSE(sampler_->submit(request(std::vector<int32_t>(21, 1), 0), [](auto) {}).ok());
  EXPECT_EQ(sample(request({1, 2, 3}, 18)).sequences[0].tokens.size(), 18U);
  EXPECT_TRUE(sample(request(std::vector<int32_t>(20, 1), 1)).sequences[0].tokens.size() == 1);
  auto unlimited = request({1, 2, 3}, 0);
  unlimited.params.max_tokens.reset();
  EXPECT_EQ(sample(unlimited).sequences[0].tokens.size(), 18U);
}

TEST_F(KvPressureTest, AnIdenticalPromptIsNotComputedAgain) {
  make(100);
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const SampleResult first = sample(request(prompt, 6));
  EXPECT_EQ(first.cached_tokens, 0);
  const size_t fed = engine_->fed;
  const SampleResult second = sample(request(prompt, 6));
  expect_same(second, first);
  EXPECT_EQ(second.cached_tokens, 8);
  EXPECT_EQ(engine_->fed - fed, fed - 8);
  EXPECT_EQ(metrics_.counter("tuft.prefix_cache.queries", model_), 20);
  EXPECT_EQ(metrics_.counter("tuft.prefix_cache.hits", model_), 8);
  // A conversation: the prompt of the next turn begins with the previous prompt and answer.
  auto longer = prompt;
  longer.insert(longer.end(), first.sequences[0].tokens.begin(), first.sequences[0].tokens.end());
  EXPECT_EQ(sample(request(longer, 2)).cached_tokens, 12);
}

TEST_F(KvPressureTest, AdaptersAndTenantsDoNotShare) {
  make(100);
  const std::vector<int32_t> prompt(10, 3);
  const auto cached = [&](const char* adapter, const char* scope) {
    auto what = request(prompt, 1);
    if (*adapter != 0) what.adapter = AdapterId(adapter);
    what.scope = scope;
    return sample(what).cached_tokens;
  };
  for (int round = 0; round < 2; ++round) {
    for (const char* adapter : {"", "a", "b"}) {
      for (const char* scope : {"", "one", "two"}) EXPECT_EQ(cached(adapter, scope), round * 8);
    }
  }
  ASSERT_TRUE(engine_->adapters().import_state(AdapterId("a"), {}).ok());
  EXPECT_EQ(cached("a", "one"), 0);
  EXPECT_EQ(cached("b", "one"), 8);
}

TEST_F(KvPressureTest, IdenticalPromptsInFlightAreComputedOnce) {
  make(100, /*batch_tokens=*/64);
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<Outcome> outcomes(4);
  for (size_t i = 0; i < 4; ++i) submit(request(prompt, 3, i), outcomes[i]);
  run();
  EXPECT_EQ(outcomes[0]->value().cached_tokens, 0);
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(outcomes[i]->value().cached_tokens, 8);
  EXPECT_EQ(engine_->step_tokens[0], 9U);
  make(100, /*batch_tokens=*/4);
  std::vector<Outcome> chunked(2);
  for (size_t i = 0; i < 2; ++i) submit(request(prompt, 3, i), chunked[i]);
  run();
  for (size_t i = 0; i < 2; ++i) expect_same(**chunked[i], **outcomes[i]);
  EXPECT_EQ(chunked[1]->value().cached_tokens, 8);
}

TEST_F(KvPressureTest, PromptLogprobsAreCompleteWithAnyCache) {
  make(100);
  auto what = request({1, 2, 3, 4, 5, 6, 7, 8, 9}, 3);
  what.prompt_logprobs = true;
  what.topk_prompt_logprobs = 2;
  const SampleResult first = sample(what);
  const SampleResult second = sample(what);
  expect_same(second, first);
  EXPECT_EQ(first.prompt_logprobs.size(), 9U);
  EXPECT_EQ(second.cached_tokens, 0);
  what.prompt_logprobs = false;
  what.topk_prompt_logprobs = 0;
  EXPECT_EQ(sample(what).cached_tokens, 8) << "but others find it";
}

TEST_F(KvPressureTest, ManySamplesOfOnePromptInASmallCache) {
  auto what = request({1, 2, 3, 4, 5, 6}, 14, 5);
  what.num_samples = 9;
  make(100);
  const SampleResult wide = sample(what);
  for (const int64_t blocks : {5, 6, 8, 11}) {
    make(blocks);
    expect_same(sample(what), wide);
  }
}

TEST_F(KvPressureTest, CancelInEveryStateFreesAtOnce) {
  make(6);
  Outcome outcomes[4];
  std::vector<Sampler::RequestNumber> numbers;
  for (int i = 0; i < 4; ++i) {
    numbers.push_back(*sampler_->submit(request({i, 1, 2, 3, 4, 5}, 12, 1), into(outcomes[i])));
  }
  for (int i = 0; i < 8; ++i) sampler_->step();
  ASSERT_GT(metrics_.counter("tuft.scheduler.preemptions", model_), 0);
  const int64_t before = engine_->decoding().kv_usage().used;
  sampler_->cancel(numbers[0]);  // decoding
  EXPECT_LT(engine_->decoding().kv_usage().used, before);
  for (const auto number : numbers) sampler_->cancel(number);  // preempted, prefilling or queued
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome->error().code, ErrorCode::kCancelled);
  EXPECT_TRUE(sampler_->idle());
  EXPECT_EQ(sampler_->running(), 0);
  expect_nothing_held();
}

TEST_F(KvPressureTest, CachedBlocksAreEvictedBeforeAPreemption) {
  make(8);
  sample(request({1, 2, 3, 4, 5, 6, 7, 8, 9}, 5));
  EXPECT_EQ(engine_->decoding().kv_usage().cached, 30);
  sample(request({9, 8, 7, 6, 5, 4, 3, 2, 1}, 20));
  EXPECT_GT(metrics_.counter("tuft.kv_cache.evictions", model_), 0);
  EXPECT_EQ(metrics_.counter("tuft.scheduler.preemptions", model_), 0);
}

TEST_F(KvPressureTest, TokensOfAPreemptedSequenceAreStreamedOnce) {
  make(7);
  Outcome outcomes[2];
  std::vector<int32_t> streamed;
  submit(request({1, 2, 3}, 20, 1), outcomes[0]);
  auto what = request({4, 5, 6}, 20, 2);
  what.on_tokens = [&](int, std::span<const int32_t> tokens, const auto&...) {
    streamed.insert(streamed.end(), tokens.begin(), tokens.end());
  };
  submit(what, outcomes[1]);
  run();
  EXPECT_GE((*outcomes[1])->preemptions, 1);
  EXPECT_EQ(streamed, (*outcomes[1])->sequences[0].tokens);
}

// Random requests in random small caches, with cancellations. Every answer equals that of a run alone in an unlimited
// cache, in which nothing is reused or preempted.
TEST_F(KvPressureTest, RandomWorkloadsGiveTheAnswersOfAnUnlimitedCache) {
  std::mt19937 random(11);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int64_t preemptions = 0;
  int64_t hits = 0;
  for (int round = 0; round < 60; ++round) {
    const int64_t blocks = 9 + below(14);
    std::vector<SampleRequest> requests;
    for (int i = 0; i < 14; ++i) {
      std::vector<int32_t> prompt(static_cast<size_t>(1 + below(18)));
      for (auto& token : prompt) token = below(12) == 0 ? 1 : 2;
      auto what = request(std::move(prompt), below(19), static_cast<uint64_t>(i));
      what.num_samples = 1 + below(4);
      what.prompt_logprobs = below(4) == 0;
      what.topk_prompt_logprobs = below(4) == 0 ? 3 : 0;
      if (below(2) == 0) what.adapter = AdapterId(below(2) == 0 ? "a" : "b");
      what.params.stop_tokens = {below(16)};
      requests.push_back(std::move(what));
    }
    std::vector<SampleResult> expected;
    make(0);
    for (const auto& what : requests) expected.push_back(sample(what));

    make(blocks, 1 + below(20), 1 + below(9));
    std::vector<Outcome> outcomes(requests.size());
    std::vector<Sampler::RequestNumber> numbers;
    for (size_t i = 0; i < requests.size(); ++i) {
      numbers.push_back(*sampler_->submit(requests[i], into(outcomes[i])));
      for (int steps = below(6); steps > 0; --steps) sampler_->step();
      if (below(6) == 0) sampler_->cancel(numbers[static_cast<size_t>(below(static_cast<int>(numbers.size())))]);
    }
    run();
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(outcomes[i].has_value());
      if (!outcomes[i]->ok()) {
        EXPECT_EQ(outcomes[i]->error().code, ErrorCode::kCancelled) << outcomes[i]->error().message;
        continue;
      }
      SCOPED_TRACE("round " + std::to_string(round) + ", request " + std::to_string(i));
      expect_same(**outcomes[i], expected[i]);
    }
  }
  preemptions = metrics_.counter("tuft.scheduler.preemptions", model_);
  hits = metrics_.counter("tuft.prefix_cache.hits", model_);
  EXPECT_GT(preemptions, 100);
  EXPECT_GT(hits, 100);
}

TEST_F(KvPressureTest, StepsShortOfBlocksAreCounted) {
  const auto failures = [&] { return metrics_.counter("tuft.kv_cache.alloc_failures", model_); };
  make(/*blocks=*/6);
  Outcome first;
  Outcome second;
  submit(request({1, 2, 3, 4}, 8), first);  // three blocks each
  submit(request({5, 6, 7, 8}, 8), second);
  run();
  EXPECT_EQ(failures(), 0);
  make(/*blocks=*/4);
  submit(request({1, 2, 3, 4}, 8), first);
  submit(request({5, 6, 7, 8}, 8), second);
  run();
  EXPECT_GT(failures(), 0);
  EXPECT_LT(failures(), 20) << "once a step";
}

}  // namespace
}  // namespace tuft::engine
