// What a tenant gets does not depend on who shares its pass or its step.
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support.h"

namespace tuft::parity {
namespace {

struct Tenant {
  engine::AdapterId id;
  size_t datum = 0;
};

// Other adapters, differing from the reference in every tensor and one of them in rank.
engine::AdapterState other_adapter(const engine::ModelSpec& model, int rank, uint64_t seed) {
  engine::LoraSpec spec;
  spec.rank = rank;
  spec.alpha = 16;
  spec.seed = seed;
  engine::AdapterState state = engine::make_adapter(model, spec);
  for (engine::LoraTensor& tensor : state.tensors) {
    for (size_t i = 0; i < tensor.b.size(); ++i) tensor.b[i] = 0.05F * std::sin(static_cast<float>(i + seed));
  }
  return state;
}

class IsolationTest : public ParityTest {
 protected:
  void SetUp() override {
    ParityTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_TRUE(engine_->adapters().create(wide_, other_adapter(reference_->model(), 7, 1)).ok());
    ASSERT_TRUE(engine_->adapters().create(narrow_, other_adapter(reference_->model(), 1, 2)).ok());
    all_ = {{wide_, 3}, {adapter_, 1}, {narrow_, 2}, {adapter_, 4}, {wide_, 0}, {adapter_, 2}};
  }

  // Forward and backward of the tenants' datums in one pack; the log-probabilities of each.
  std::vector<std::vector<float>> pass(const std::vector<Tenant>& tenants) {
    engine::Pack pack;
    std::vector<float> dloss;
    std::vector<size_t> counts;
    for (const Tenant& tenant : tenants) {
      const ReferenceDatum& datum = reference_->data()[tenant.datum];
      const int begin = static_cast<int>(pack.tokens.size());
      pack.tokens.insert(pack.tokens.end(), datum.tokens.begin(), datum.tokens.end());
      pack.segments.push_back({tenant.id, begin, static_cast<int>(pack.tokens.size())});
      for (size_t row = 0; row < datum.tokens.size(); ++row) {
        pack.targets.push_back({begin + static_cast<int>(row), static_cast<int32_t>(datum.targets[row])});
        dloss.push_back(-datum.weights[row]);
      }
      counts.push_back(datum.tokens.size());
    }
    std::vector<float> logprobs(pack.targets.size());
    const Status forward = engine_->training().forward(pack, true, logprobs);
    EXPECT_TRUE(forward.ok()) << forward.error().message;
    const Status backward = engine_->training().backward(dloss);
    EXPECT_TRUE(backward.ok()) << backward.error().message;
    std::vector<std::vector<float>> split;
    auto next = logprobs.begin();
    for (const size_t count : counts) {
      split.emplace_back(next, next + static_cast<std::ptrdiff_t>(count));
      next += static_cast<std::ptrdiff_t>(count);
    }
    return split;
  }

  std::vector<engine::LoraTensor> take_gradients(const engine::AdapterId& id) {
    auto gradients = engine_->adapters().gradients(id);
    EXPECT_TRUE(gradients.ok());
    EXPECT_TRUE(engine_->adapters().clear_gradients(id).ok());
    return std::move(gradients).value();
  }

  const engine::AdapterId wide_{"wide"};
  const engine::AdapterId narrow_{"narrow"};
  std::vector<Tenant> all_;
};

TEST_P(IsolationTest, LogprobsAreThoseOfAPassAlone) {
  const auto together = pass(all_);
  for (size_t i = 0; i < all_.size(); ++i) {
    const auto alone = pass({all_[i]});
    EXPECT_TRUE(agree(back_end(), together[i], alone[0])) << "segment " << i;
  }
}

TEST_P(IsolationTest, GradientsAreThoseOfAPassAlone) {
  pass(all_);
  for (const engine::AdapterId& id : {adapter_, wide_, narrow_}) {
    const auto together = take_gradients(id);
    std::vector<Tenant> own;
    for (const Tenant& tenant : all_) {
      if (tenant.id == id) own.push_back(tenant);
    }
    pass(own);
    const auto alone = take_gradients(id);
    if (back_end().bitwise) {
      EXPECT_TRUE(near_lora(together, alone, 0, 0)) << id.str();
    } else {
      EXPECT_TRUE(near_lora(together, alone, 1e-6, 1e-4, 5e-6)) << id.str();
    }
  }
}

TEST_P(IsolationTest, AStepOfOneAdapterLeavesTheOthersAlone) {
  pass(all_);
  const auto before = engine_->adapters().gradients(narrow_);
  const auto tensors = engine_->adapters().export_state(narrow_, false);
  ASSERT_TRUE(before.ok() && tensors.ok());
  ASSERT_TRUE(engine_->training().optim_step(adapter_, reference_->adam().params).ok());
  const auto after = engine_->adapters().gradients(narrow_);
  const auto tensors_after = engine_->adapters().export_state(narrow_, false);
  ASSERT_TRUE(after.ok() && tensors_after.ok());
  EXPECT_TRUE(near_lora(*after, *before, 0, 0));
  EXPECT_TRUE(near_lora(tensors_after->tensors, tensors->tensors, 0, 0));
}

engine::SampleRequest seeded_request(const std::optional<engine::AdapterId>& adapter, std::vector<int32_t> prompt,
                                     uint64_t seed) {
  engine::SampleRequest request;
  request.adapter = adapter;
  request.prompt = std::move(prompt);
  request.num_samples = 2;
  request.params.max_tokens = 16;
  request.params.seed = seed;
  request.params.temperature = 0.8F;
  return request;
}

TEST_P(IsolationTest, ASeededSampleIsTheSameInCompany) {
  std::vector<engine::SampleRequest> requests;
  const std::array<std::optional<engine::AdapterId>, 4> adapters = {adapter_, std::nullopt, wide_, narrow_};
  for (size_t i = 0; i < 8; ++i) {
    const auto& tokens = reference_->data()[1 + i % 4].tokens;
    requests.push_back(seeded_request(adapters[i % adapters.size()], tokens, 100 + i));
  }
  const auto together = sample(*engine_, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto alone = sample(*engine_, {requests[i]});
    ASSERT_EQ(alone[0].sequences.size(), 2U);
    ASSERT_EQ(together[i].sequences.size(), 2U);
    for (size_t s = 0; s < 2; ++s) {
      EXPECT_EQ(together[i].sequences[s].tokens, alone[0].sequences[s].tokens) << "request " << i;
      if (back_end().bitwise) {
        EXPECT_TRUE(same_all(together[i].sequences[s].logprobs, alone[0].sequences[s].logprobs)) << "request " << i;
      }
    }
  }
}

TUFT_PARITY_SUITE(IsolationTest);

}  // namespace
}  // namespace tuft::parity
