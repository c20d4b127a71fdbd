// Tests that adapters leave the engine and come back unchanged, and that copies can be sampled from.
#include <algorithm>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/native/tests/reference_model.h"

namespace tuft::engine::native::test {
namespace {

const AdapterId kId("a");
const AdapterId kVersion("version");

class NativeAdapter : public ::testing::Test {
 protected:
  NativeAdapter() {
    NativeOptions options;
    options.threads = 2;
    engine_ = make_engine(spec_, MemoryTensors(spec_, 7), options).value();
    EXPECT_TRUE(engine_->adapters().create(kId, random_adapter(spec_, 4, 1)).ok());
    pack_.tokens = random_tokens(spec_, 20, 5);
    pack_.segments.push_back({kId, 0, 20});
    for (int i = 0; i < 19; ++i) pack_.targets.push_back({i, pack_.tokens[static_cast<size_t>(i) + 1]});
  }

  std::vector<float> train() {
    std::vector<float> logprobs(pack_.targets.size());
    EXPECT_TRUE(engine_->training().forward(pack_, true, logprobs).ok());
    EXPECT_TRUE(engine_->training().backward(std::vector<float>(pack_.targets.size(), -1.0F)).ok());
    return logprobs;
  }
  // Takes it out of the engine and puts it back, also as the threads of a worker do that.
  void leave_and_return() {
    auto state = engine_->adapters().take(kId);
    ASSERT_TRUE(state.ok()) << state.error().message;
    EXPECT_FALSE(engine_->adapters().contains(kId));
    ASSERT_TRUE(engine_->adapters().create(kId, *state).ok());
    auto left = engine_->adapters().detach(kId);
    ASSERT_TRUE(left.ok()) << left.error().message;
    EXPECT_FALSE(engine_->adapters().contains(kId));
    DetachedPointer made;
    std::thread([&] {
      const auto make = [&](const AdapterState& whole) -> Status {
        TUFT_ASSIGN(made, engine_->adapters().make(whole));
        return {};
      };
      EXPECT_TRUE((*left)->visit(make).ok());
      left->reset();
    }).join();
    ASSERT_TRUE(engine_->adapters().attach(kId, std::move(made)).ok());
  }
  // Returns the results of several steps. The adapter leaves and returns at the points that `absent` names.
  std::vector<std::vector<float>> curve(bool absent) {
    std::vector<std::vector<float>> all;
    for (int step = 0; step < 6; ++step) {
      if (absent) leave_and_return();
      all.push_back(train());
      if (absent) leave_and_return();  // with a gradient
      all.push_back(train());
      const auto report = engine_->training().optim_step(kId, {.learning_rate = 1e-2, .grad_clip_norm = 1.0});
      EXPECT_TRUE(report.ok());
      all.push_back({static_cast<float>(report->grad_norm), static_cast<float>(report->step)});
    }
    return all;
  }
  std::vector<float> logits_of(const AdapterId& adapter) {
    const SequenceId sequence = engine_->decoding().open(adapter, 0).value();
    const std::vector<int32_t> tokens = {1, 2, 3};
    const Feed feed{sequence, tokens, 1};
    std::vector<float> logits;
    EXPECT_TRUE(engine_->decoding()
                    .step({&feed, 1}, for_each_row([&](size_t, int, std::span<const float> row) {
                            logits.assign(row.begin(), row.end());
                          }))
                    .ok());
    engine_->decoding().close(sequence);
    return logits;
  }

  const ModelSpec spec_ = tiny_spec(Family::kQwen3, true);
  std::unique_ptr<Engine> engine_;
  Pack pack_;
};

TEST_F(NativeAdapter, LeavesAndReturnsThenTheSameBitsAsOneThatStayed) {
  const AdapterState start = engine_->adapters().export_state(kId, false).value();
  const auto stayed = curve(false);
  ASSERT_TRUE(engine_->adapters().import_state(kId, start).ok());
  ASSERT_TRUE(engine_->adapters().remove(kId).ok());
  ASSERT_TRUE(engine_->adapters().create(kId, start).ok());
  EXPECT_EQ(curve(true), stayed);
}

TEST_F(NativeAdapter, IsReplacedThenItIsAsIfItsStateWereImported) {
  const AdapterState start = engine_->adapters().export_state(kId, false).value();
  const auto first = curve(false);
  const AdapterState trained = engine_->adapters().export_state(kId, true).value();
  const auto imported = [&](const AdapterState& state) {
    train();  // its gradient is not that of the new weights
    EXPECT_TRUE(engine_->adapters().import_state(kId, state).ok());
    return curve(false);
  };
  const auto replaced = [&](const AdapterState& state) {
    train();
    EXPECT_TRUE(engine_->adapters().replace(kId, engine_->adapters().make(state).value()).ok());
    return curve(false);
  };
  EXPECT_EQ(replaced(start), first) << "without moments";
  EXPECT_EQ(replaced(trained), imported(trained)) << "with moments";
  EXPECT_EQ(replaced(start), imported(start));
}

TEST_F(NativeAdapter, ACopyKeepsItsBitsWhileTheAdapterTrainsOn) {
  const auto same = [](const std::vector<LoraTensor>& left, const std::vector<LoraTensor>& right) {
    return std::ranges::equal(left, right, [](const LoraTensor& a, const LoraTensor& b) {
      return a.module == b.module && a.layer == b.layer && a.a == b.a && a.b == b.b;
    });
  };
  const auto expect_copy = [&](bool with_optimizer) {
    const AdapterState now = engine_->adapters().export_state(kId, with_optimizer).value();
    const DetachedPointer copy = engine_->adapters().copy(kId, with_optimizer).value();
    train();
    ASSERT_TRUE(engine_->training().optim_step(kId, {.learning_rate = 1e-2}).ok());
    const auto compare = [&](const AdapterState& state) -> Status {
      EXPECT_TRUE(same(state.tensors, now.tensors));
      EXPECT_TRUE(same(state.moments.first, now.moments.first));
      EXPECT_TRUE(same(state.moments.second, now.moments.second));
      EXPECT_EQ(state.moments.step, now.moments.step);
      EXPECT_EQ(state.has_optimizer, with_optimizer);
      EXPECT_EQ(state.optimizer, now.optimizer);
      EXPECT_TRUE(state.gradients.empty());
      return {};
    };
    ASSERT_TRUE(copy->visit(compare).ok());
  };
  expect_copy(true);  // it has no moments yet: zeros
  expect_copy(true);
  expect_copy(false);
  EXPECT_EQ(engine_->adapters().copy(AdapterId("x"), true).error().reason, "adapter_not_loaded");
}

TEST_F(NativeAdapter, WhatDoesNotFitDoesNotReplaceIt) {
  EXPECT_EQ(engine_->adapters().make({}).error().code, ErrorCode::kInvalidArgument);
  const auto replace = [&](const AdapterId& id, int rank) {
    return engine_->adapters().replace(id, engine_->adapters().make(random_adapter(spec_, rank, 1)).value());
  };
  EXPECT_THAT(replace(kId, 8).error().message, ::testing::HasSubstr("another rank"));
  EXPECT_EQ(replace(AdapterId("x"), 4).error().reason, "adapter_not_loaded");
  EXPECT_EQ(engine_->adapters().detach(AdapterId("x")).error().reason, "adapter_not_loaded");
  auto other = engine_->adapters().make(random_adapter(spec_, 4, 1)).value();
  EXPECT_EQ(engine_->adapters().attach(kId, std::move(other)).error().reason, "adapter_exists");
}

TEST_F(NativeAdapter, VersionKeepsItsBitsWhileItsSourceTrainsOn) {
  ASSERT_TRUE(engine_->adapters().clone(kId, kVersion).ok());
  const std::vector<float> before = logits_of(kId);
  EXPECT_EQ(logits_of(kVersion), before);
  train();
  ASSERT_TRUE(engine_->training().optim_step(kId, {.learning_rate = 1e-2}).ok());
  EXPECT_EQ(logits_of(kVersion), before);
  EXPECT_NE(logits_of(kId), before);
  ASSERT_TRUE(engine_->adapters().remove(kId).ok());
  EXPECT_EQ(logits_of(kVersion), before);
  EXPECT_EQ(engine_->adapters().clone(kId, AdapterId("x")).error().reason, "adapter_not_loaded");
}

TEST_F(NativeAdapter, VersionNeedsNoMoreMemoryThanItsBound) {
  const LoraSpec lora = engine_->adapters().export_state(kId, false)->spec;
  train();
  ASSERT_TRUE(engine_->training().optim_step(kId, {}).ok());
  train();
  const AdapterMemory trained = engine_->adapters().memory();
  EXPECT_LE(trained.weights + trained.gradients + trained.optimizer, engine_->adapters().bytes_of(lora, true));
  ASSERT_TRUE(engine_->adapters().clone(kId, kVersion).ok());
  const AdapterMemory both = engine_->adapters().memory();
  EXPECT_EQ(both.weights - trained.weights, engine_->adapters().bytes_of(lora, false));
  EXPECT_EQ(both.optimizer, trained.optimizer);
}

}  // namespace
}  // namespace tuft::engine::native::test
