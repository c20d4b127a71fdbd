// What happens where a recording cannot be made, or is wrong.
#include <stdexcept>
#include <utility>

#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "engine/init_model.h"
#include "engine/torch/decode.h"
#include "engine/weights/safetensors.h"

namespace tuft::engine::torch {
namespace {

class FailingRecording final : public Recording {
 public:
  void record(std::function<void()> /*work*/) override { throw std::runtime_error("cannot capture\nat address 7"); }
  void play() override {}
};

// As if something that it reads had changed.
class WrongRecording final : public Recording {
 public:
  explicit WrongRecording(at::Tensor read) : read_(std::move(read)) {}
  void record(std::function<void()> work) override { work_ = std::move(work); }
  void play() override {
    const at::Tensor before = read_.clone();
    read_.mul_(2);
    work_();
    read_.copy_(before);
  }

 private:
  at::Tensor read_;
  std::function<void()> work_;
};

class RecordingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    InitModelOptions tiny;
    tiny.hidden_size = 32;
    tiny.intermediate_size = 64;
    tiny.layers = 2;
    tiny.heads = 4;
    tiny.kv_heads = 2;
    tiny.head_dim = 8;
    ASSERT_TRUE(init_model(directory_ / "model", tiny).ok());
    const auto files = TensorFiles::open_model(directory_ / "model").value();
    const ModelSpec spec = load_model_spec(directory_ / "model").value();
    Weights weights = load_weights(spec, FileSource(*files), place_).value();
    final_norm_ = weights.final_norm;
    transformer_.emplace(spec, std::move(weights), place_);
    cache_.emplace(spec, place_, int64_t{1} << 20);
    ASSERT_TRUE(cache_->pool().extend(held_, 1));
  }
  // Logits of a first token; nothing is committed, so that each call computes the same.
  std::optional<at::Tensor> step(Decode& decode) {
    const Decode::Row row{nullptr, 7, &held_};
    return decode.step({&row, 1});
  }
  void expect_one_ordinary_step_and_no_more(Decode& decode) {
    const c10::NoGradGuard no_graph;
    Decode good(*transformer_, *cache_, make_recording);
    const at::Tensor want = step(good)->clone();
    const auto first = step(decode);
    ASSERT_TRUE(first.has_value());
    EXPECT_TRUE(first->equal(want));
    EXPECT_NE(decode.problem(), "");
    EXPECT_FALSE(step(decode).has_value());
    EXPECT_EQ(good.problem(), "");
    EXPECT_TRUE(step(good)->equal(want)) << "played";
  }

  TempDir directory_;
  Place place_;
  at::Tensor final_norm_;
  std::optional<Transformer> transformer_;
  std::optional<KvCache> cache_;
  BlockPool::Sequence held_;
};

TEST_F(RecordingTest, ItCannotBeMadeThenTheStepIsRightAndLaterOnesAreOrdinary) {
  Decode decode(*transformer_, *cache_,
                [](const Place&, const Recording*) { return std::make_unique<FailingRecording>(); });
  expect_one_ordinary_step_and_no_more(decode);
  EXPECT_EQ(decode.problem(), "cannot capture");
}

TEST_F(RecordingTest, ItGivesOtherNumbersThenTheStepIsRightAndLaterOnesAreOrdinary) {
  Decode decode(*transformer_, *cache_,
                [this](const Place&, const Recording*) { return std::make_unique<WrongRecording>(final_norm_); });
  expect_one_ordinary_step_and_no_more(decode);
  EXPECT_EQ(decode.problem(), "it gives other results than the operations one by one");
}

}  // namespace
}  // namespace tuft::engine::torch
