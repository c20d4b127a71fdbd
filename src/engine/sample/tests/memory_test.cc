// What a lack of memory does to the sampler: every allocation of every call fails once, alone or with all that follow.
#include <new>

#include <gtest/gtest.h>

#include "base/testing/failing_allocations.h"
#include "engine/sample/sampler.h"
#include "engine/sample/tests/one_byte.h"
#include "engine/tests/fake_engine.h"

namespace tuft::engine {
namespace {

using testing::FakeEngine;
using Outcome = std::optional<Result<SampleResult>>;
using Which = FailingAllocations::Which;

// A sampler with requests of two tenants that share a small KV cache, so that sequences are preempted.
class SampleScene {
 public:
  SampleScene() {
    (void)engine_.create(AdapterId("adapter-with-a-name-that-needs-memory"), {});
    SamplerOptions options;
    options.batch_tokens = 9;
    options.sequences_max = 4;
    options.tokens_max = 40;
    sampler_ = make_sampler(engine_.model(), engine_.adapters(), engine_.decoding(), options, one_byte, clock_);
  }
  static SampleRequest request(size_t index) {
    SampleRequest what;
    what.scope = index % 2 == 0 ? "the scope of the first of the tenants" : "the scope of the second tenant";
    if (index % 3 == 0) what.adapter = AdapterId("adapter-with-a-name-that-needs-memory");
    for (size_t i = 0; i < 7 + index; ++i) what.prompt.push_back(static_cast<int32_t>((index + i) % 16));
    what.num_samples = 1 + static_cast<int>(index % 3);
    what.params.max_tokens = 9;
    what.params.seed = index;
    what.params.top_p = 0.9F;
    what.params.stop_strings = {"a stop string that never comes, and is long"};
    what.prompt_logprobs = index == 1;
    what.topk_logprobs = index == 2 ? 3 : 0;
    if (index != 3) what.on_tokens = [](auto...) {};
    return what;
  }
  void submit(size_t index) {
    const auto number = sampler_->submit(request(index), [this, index](Result<SampleResult> result) {
      EXPECT_FALSE(outcomes_[index].has_value()) << "answered twice";
      outcomes_[index].emplace(std::move(result));
    });
    if (!number.ok()) outcomes_[index].emplace(number.error());
  }
  void step() { sampler_->step(); }
  Sampler& sampler() { return *sampler_; }
  void run() {
    for (int i = 0; i < 1000 && !sampler_->idle(); ++i) sampler_->step();
  }
  // Returns the number of requests that failed.
  int check() {
    EXPECT_TRUE(sampler_->idle());
    EXPECT_EQ(engine_.open_sequences(), 0U);
    EXPECT_EQ(engine_.kv_usage().used, 0);
    EXPECT_EQ(engine_.kv_usage().empty, 0);
    int failed = 0;
    for (const Outcome& outcome : outcomes_) {
      EXPECT_TRUE(outcome.has_value()) << "not answered";
      if (!outcome || outcome->ok()) continue;
      ++failed;
      EXPECT_EQ(outcome->error().reason, "out_of_memory");
      EXPECT_FALSE(is_user_error(outcome->error().code));
    }
    return failed;
  }
  const std::array<Outcome, 4>& outcomes() const { return outcomes_; }

 private:
  FakeEngine engine_{16, 12};
  FakeClock clock_;
  std::array<Outcome, 4> outcomes_;
  std::unique_ptr<Sampler> sampler_;
};

TEST(SamplerMemory, ARequestThatCannotBeAcceptedIsRefusedAlone) {
  for (const Which which : {Which::kOne, Which::kAllAfter}) {
    int64_t allocation = 0;
    for (bool failed = true; failed; ++allocation) {
      SampleScene scene;
      for (const size_t index : {0, 1, 2}) scene.submit(index);
      scene.step();
      SampleRequest what = SampleScene::request(3);
      Outcome outcome;
      Sampler::Done done = [&](Result<SampleResult> result) { outcome.emplace(std::move(result)); };
      FailingAllocations::start(allocation, which);
      const auto number = scene.sampler().submit(std::move(what), std::move(done));
      failed = FailingAllocations::stop();
      if (!number.ok()) {
        EXPECT_EQ(number.error().reason, "out_of_memory");
        scene.submit(3);  // as a client would
      }
      scene.run();
      EXPECT_TRUE(number.ok() == outcome.has_value());
      if (number.ok()) continue;
      EXPECT_EQ(scene.check(), 0) << "the others go on";
    }
    EXPECT_GT(allocation, 2);
  }
}

TEST(SamplerMemory, AStepThatCannotBeMadeFailsItsRequestsAndNothingElse) {
  SampleScene undisturbed;
  for (const size_t index : {0, 1, 2, 3}) undisturbed.submit(index);
  undisturbed.run();
  ASSERT_EQ(undisturbed.check(), 0);
  int failures = 0;
  for (const Which which : {Which::kOne, Which::kAllAfter}) {
    bool ran = true;
    for (int before = 0; ran; ++before) {
      bool failed = true;
      for (int64_t allocation = 0; failed; ++allocation) {
        SampleScene scene;
        for (const size_t index : {0, 1, 2, 3}) scene.submit(index);
        for (int i = 0; i < before; ++i) scene.step();
        ran = !scene.sampler().idle();
        FailingAllocations::start(allocation, which);
        scene.step();
        failed = FailingAllocations::stop();
        scene.run();
        failures += scene.check();
        for (size_t index = 0; index < 4; ++index) {
          if (!scene.outcomes()[index]->ok()) continue;
          EXPECT_EQ((*scene.outcomes()[index])->sequences[0].tokens,
                    (*undisturbed.outcomes()[index])->sequences[0].tokens);
        }
        if (::testing::Test::HasFailure()) FAIL() << "step " << before << ", allocation " << allocation;
      }
    }
  }
  EXPECT_GT(failures, 100);
}

TEST(SamplerMemory, TokensThatCannotBeStreamedFailTheirRequestAlone) {
  FakeEngine engine;
  FakeClock clock;
  SamplerOptions options;
  options.tokens_max = 40;
  const auto sampler = make_sampler(engine.model(), engine.adapters(), engine.decoding(), options, one_byte, clock);
  std::array<Outcome, 2> outcomes;
  for (size_t index = 0; index < 2; ++index) {
    SampleRequest what;
    what.prompt = {1, 2, 3};
    what.params.max_tokens = 6;
    int tokens = 0;
    what.on_tokens = [index, tokens](auto...) mutable {
      if (index == 0 && ++tokens == 3) throw std::bad_alloc();
    };
    ASSERT_TRUE(
        sampler->submit(what, [&outcomes, index](auto result) { outcomes[index].emplace(std::move(result)); }).ok());
  }
  for (int i = 0; i < 100 && !sampler->idle(); ++i) sampler->step();
  ASSERT_FALSE(outcomes[0]->ok());
  EXPECT_EQ(outcomes[0]->error().reason, "out_of_memory");
  EXPECT_TRUE(outcomes[1]->ok());
}

}  // namespace
}  // namespace tuft::engine
