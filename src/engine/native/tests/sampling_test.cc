// Tests the sampler on the real engine: preemption, the prefix cache, forks and chunks change no bit of an answer, and
// sampled log-probabilities equal those of forward().
#include <random>

#include <gtest/gtest.h>

#include "engine/native/tests/reference_model.h"
#include "engine/sample/sampler.h"

namespace tuft::engine::native::test {
namespace {

using Outcome = std::optional<Result<SampleResult>>;

struct Setting {
  int64_t blocks_max = 0;
  int batch_tokens = 256;
  int sequences_max = 64;
  WeightsDtype dtype = WeightsDtype::kFloat32;
};

class NativeSampling : public ::testing::Test {
 protected:
  void make(Family family, const Setting& setting) {
    spec_ = tiny_spec(family, true);
    NativeOptions options;
    options.threads = 2;
    options.weights_dtype = setting.dtype;
    options.kv_bytes_max = setting.blocks_max * int64_t{4} * spec_.layers * spec_.kv_heads * 2 * 64 * spec_.head_dim;
    sampler_.reset();
    engine_ = make_engine(spec_, MemoryTensors(spec_, 7), options).value();
    ASSERT_TRUE(engine_->adapters().create(AdapterId("a"), random_adapter(spec_, 3, 1)).ok());
    ASSERT_TRUE(engine_->adapters().create(AdapterId("b"), random_adapter(spec_, 8, 2)).ok());
    sampler_ = make_sampler(engine_->model(), engine_->adapters(), engine_->decoding(),
                            {.batch_tokens = setting.batch_tokens,
                             .tokens_max = 256,
                             .sequences_max = setting.sequences_max,
                             .base_model = "m"},
                            {}, clock_);
  }
  void submit(const SampleRequest& what, Outcome& outcome) {
    const auto number =
        sampler_->submit(what, [&](Result<SampleResult> result) { outcome.emplace(std::move(result)); });
    ASSERT_TRUE(number.ok()) << number.error().message;
  }
  void run() {
    for (int i = 0; i < 5000 && !sampler_->idle(); ++i) sampler_->step();
    ASSERT_TRUE(sampler_->idle());
    EXPECT_EQ(engine_->decoding().kv_usage().used, 0);
  }
  // Prompts of the same kind have the same beginning.
  std::vector<SampleRequest> workload(uint64_t seed) const {
    std::mt19937 random(static_cast<unsigned>(seed));
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    std::vector<SampleRequest> requests;
    for (int i = 0; i < 8; ++i) {
      SampleRequest what;
      what.prompt = random_tokens(spec_, 1 + below(150), static_cast<uint64_t>(below(2)));
      what.params.max_tokens = 1 + below(60);
      what.params.seed = static_cast<uint64_t>(i);
      what.params.temperature = below(3) == 0 ? 0.0F : 1.0F;
      what.num_samples = 1 + below(3);
      what.prompt_logprobs = below(4) == 0;
      if (below(2) == 0) what.adapter = AdapterId(below(2) == 0 ? "a" : "b");
      requests.push_back(std::move(what));
    }
    return requests;
  }
  std::vector<SampleResult> answers(const std::vector<SampleRequest>& requests, bool together) {
    std::vector<Outcome> outcomes(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      submit(requests[i], outcomes[i]);
      if (!together) run();
    }
    run();
    std::vector<SampleResult> results;
    for (Outcome& outcome : outcomes) results.push_back(outcome->value());
    return results;
  }
  void expect_logprobs_of_forward(const SampleRequest& request, const SampleResult& result) {
    for (const SampledSequence& sequence : result.sequences) {
      Pack pack;
      pack.tokens = request.prompt;
      pack.tokens.insert(pack.tokens.end(), sequence.tokens.begin(), sequence.tokens.end() - 1);
      pack.segments.push_back({*request.adapter, 0, static_cast<int>(pack.tokens.size())});
      const auto prompt = static_cast<int>(request.prompt.size());
      for (size_t i = 0; i < sequence.tokens.size(); ++i) {
        pack.targets.push_back({prompt - 1 + static_cast<int>(i), sequence.tokens[i]});
      }
      std::vector<float> logprobs(pack.targets.size());
      ASSERT_TRUE(engine_->training().forward(pack, false, logprobs).ok());
      for (size_t i = 0; i < logprobs.size(); ++i) EXPECT_EQ(sequence.logprobs[i], logprobs[i]);
    }
  }

  ModelSpec spec_;
  FakeClock clock_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Sampler> sampler_;
};

TEST_F(NativeSampling, PressureForksAndReuseGiveTheBitsOfAnUnlimitedCache) {
  int preemptions = 0;
  int cached = 0;
  for (const WeightsDtype dtype : {WeightsDtype::kFloat32, WeightsDtype::kBfloat16}) {
    for (const uint64_t seed : {1, 2, 3}) {
      make(seed == 2 ? Family::kQwen3 : Family::kLlama, {.blocks_max = 0, .dtype = dtype});
      const auto requests = workload(seed);
      const auto expected = answers(requests, false);
      for (const Setting& setting : {Setting{6, 40, 8, dtype}, Setting{5, 256, 64, dtype}, Setting{9, 33, 3, dtype}}) {
        make(seed == 2 ? Family::kQwen3 : Family::kLlama, setting);
        const auto got = answers(requests, true);
        for (size_t i = 0; i < requests.size(); ++i) {
          preemptions += got[i].preemptions;
          cached += got[i].cached_tokens;
          for (size_t k = 0; k < got[i].sequences.size(); ++k) {
            EXPECT_EQ(got[i].sequences[k].tokens, expected[i].sequences[k].tokens);
            EXPECT_EQ(got[i].sequences[k].logprobs, expected[i].sequences[k].logprobs);
          }
          ASSERT_EQ(got[i].prompt_logprobs.size(), expected[i].prompt_logprobs.size());
          for (size_t k = 1; k < got[i].prompt_logprobs.size(); ++k) {
            EXPECT_EQ(got[i].prompt_logprobs[k], expected[i].prompt_logprobs[k]);
          }
          if (requests[i].adapter) expect_logprobs_of_forward(requests[i], got[i]);
        }
      }
    }
  }
  EXPECT_GT(preemptions, 5);
  EXPECT_GT(cached, 64);
}

}  // namespace
}  // namespace tuft::engine::native::test
