// Checkpoints: PEFT's load here, ours come back to the bit, training goes on from one as if nothing had happened.
// (That PEFT loads ours: peft_loads_ours.py.)
#include <filesystem>

#include <gtest/gtest.h>

#include "base/id.h"
#include "engine/checkpoint/checkpoint.h"
#include "support.h"

namespace tuft::parity {
namespace {

class CheckpointParity : public ParityTest {
 protected:
  void SetUp() override {
    ParityTest::SetUp();
    root_ = std::filesystem::temp_directory_path() / ("tuft-parity-" + random_uuid());
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void train_steps(engine::Engine& engine, const engine::AdapterId& id, int steps) {
    for (int step = 0; step < steps; ++step) {
      engine::TrainRequest request{id, reference_->request_data("cross_entropy"), "cross_entropy", {}, true};
      ASSERT_TRUE(train(engine, std::move(request), 64));
      ASSERT_TRUE(engine.training().optim_step(id, reference_->adam().params).ok());
    }
  }

  std::filesystem::path root_;
};

TEST_P(CheckpointParity, AnAdapterSavedByPeftIsRead) {
  const auto state = engine::read_checkpoint(reference_->adapter_directory(), reference_->model(), false);
  ASSERT_TRUE(state.ok()) << state.error().message;
  EXPECT_EQ(state->spec.rank, reference_->adapter().spec.rank);
  EXPECT_EQ(state->spec.alpha, reference_->adapter().spec.alpha);
  EXPECT_TRUE(near_lora(state->tensors, reference_->adapter().tensors, 0, 0));
}

TEST_P(CheckpointParity, WhatIsWrittenComesBackToTheBit) {
  train_steps(*engine_, adapter_, 2);
  const auto state = engine_->adapters().export_state(adapter_, true);
  ASSERT_TRUE(state.ok());
  const auto written = engine::write_checkpoint(root_ / "a", reference_->model(), *state, "base");
  ASSERT_TRUE(written.ok()) << written.error().message;
  const auto read = engine::read_checkpoint(root_ / "a", reference_->model(), true);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_TRUE(near_lora(read->tensors, state->tensors, 0, 0));
  ASSERT_TRUE(read->has_optimizer);
  EXPECT_EQ(read->moments.step, 2);
  EXPECT_TRUE(near_lora(read->moments.first, state->moments.first, 0, 0));
  EXPECT_TRUE(near_lora(read->moments.second, state->moments.second, 0, 0));
}

TEST_P(CheckpointParity, TrainingGoesOnFromACheckpointAsIfNeverStopped) {
  train_steps(*engine_, adapter_, 3);
  const auto state = engine_->adapters().export_state(adapter_, true);
  ASSERT_TRUE(state.ok());
  ASSERT_TRUE(engine::write_checkpoint(root_ / "a", reference_->model(), *state, "base").ok());
  train_steps(*engine_, adapter_, 3);

  const engine::AdapterId resumed("resumed");
  const auto read = engine::read_checkpoint(root_ / "a", reference_->model(), true);
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_TRUE(engine_->adapters().create(resumed, *read).ok());
  train_steps(*engine_, resumed, 3);

  const auto straight = engine_->adapters().export_state(adapter_, true);
  const auto stopped = engine_->adapters().export_state(resumed, true);
  ASSERT_TRUE(straight.ok() && stopped.ok());
  EXPECT_EQ(stopped->moments.step, 6);
  EXPECT_TRUE(near_lora(stopped->tensors, straight->tensors, 0, 0));
  EXPECT_TRUE(near_lora(stopped->moments.second, straight->moments.second, 0, 0));
}

TUFT_PARITY_SUITE(CheckpointParity);

}  // namespace
}  // namespace tuft::parity
