// Tests decode steps whose capture fails or gives wrong results.
#include <stdexcept>
#include <utility>

#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "engine/init_model.h"
#include "engine/torch/decode.h"
#include "engine/weights/safetensors.h"

namespace tuft::engine::torch {
namespace {

constexpr int64_t kKeysMax = 1 << 20;

class FailingCapture final : public GraphCapture {
 public:
  void capture(std::function<void()> /*work*/) override { throw std::runtime_error("cannot capture\nat address 7"); }
  void replay() override {}
};

// Replays with a changed input, so that the result is wrong.
class WrongCapture final : public GraphCapture {
 public:
  explicit WrongCapture(at::Tensor read) : read_(std::move(read)) {}
  void capture(std::function<void()> work) override { work_ = std::move(work); }
  void replay() override {
    const at::Tensor before = read_.clone();
    read_.mul_(2);
    work_();
    read_.copy_(before);
  }

 private:
  at::Tensor read_;
  std::function<void()> work_;
};

class GraphCaptureTest : public ::testing::Test {
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
    Weights weights = load_weights(spec, FileSource(*files), placement_).value();
    norms_ = {weights.final_norm, weights.blocks[0].attention_norm};
    transformer_.emplace(spec, std::move(weights), placement_);
    cache_.emplace(spec, placement_, int64_t{1} << 20);
    ASSERT_TRUE(cache_->pool().extend(held_, 1));
  }
  // Returns the logits of a first token; nothing is committed, so that each call computes the same.
  std::optional<at::Tensor> step(Decode& decode) {
    const Decode::Row row{nullptr, 7, &held_};
    return decode.step({&row, 1});
  }
  // Those of the token.
  at::Tensor keys_and_values() const {
    std::vector<at::Tensor> all;
    for (int layer = 0; layer < transformer_->spec().layers; ++layer) {
      const auto [k, v] = cache_->read(layer, to_device(std::vector<int64_t>{KvCache::slot(held_, 0)}, placement_));
      all.insert(all.end(), {k, v});
    }
    return at::cat(all);
  }
  void expect_one_ordinary_step_and_no_more(Decode& decode) {
    const c10::NoGradGuard no_graph;
    Decode good(*transformer_, *cache_, kKeysMax, make_graph_capture);
    const at::Tensor want = step(good)->clone();
    const at::Tensor keys = keys_and_values();
    const auto first = step(decode);
    ASSERT_TRUE(first.has_value());
    EXPECT_TRUE(first->equal(want));
    EXPECT_TRUE(keys_and_values().equal(keys));
    EXPECT_NE(decode.problem(), "");
    EXPECT_FALSE(step(decode).has_value());
    EXPECT_EQ(good.problem(), "");
    EXPECT_TRUE(step(good)->equal(want)) << "played";
  }

  TempDir directory_;
  Placement placement_;
  std::vector<at::Tensor> norms_;  // the last one, and that before the first keys and values
  std::optional<Transformer> transformer_;
  std::optional<KvCache> cache_;
  BlockPool::Sequence held_;
};

TEST_F(GraphCaptureTest, CaptureFailsThenTheStepIsRightAndLaterOnesAreOrdinary) {
  Decode decode(*transformer_, *cache_, kKeysMax,
                [](const Placement&, const GraphCapture*) { return std::make_unique<FailingCapture>(); });
  expect_one_ordinary_step_and_no_more(decode);
  EXPECT_EQ(decode.problem(), "cannot capture");
}

TEST_F(GraphCaptureTest, CaptureIsWrongThenTheStepIsRightAndLaterOnesAreOrdinary) {
  for (const at::Tensor& norm : norms_) {
    Decode decode(*transformer_, *cache_, kKeysMax,
                  [&norm](const Placement&, const GraphCapture*) { return std::make_unique<WrongCapture>(norm); });
    expect_one_ordinary_step_and_no_more(decode);
    EXPECT_EQ(decode.problem(), "its results differ from those of single operations");
  }
}

TEST_F(GraphCaptureTest, NoMemoryForACaptureThenItIsTriedAgainAThousandStepsLater) {
  const c10::NoGradGuard no_graph;
  bool has_memory = false;
  Decode decode(*transformer_, *cache_, kKeysMax, [&](const Placement& placement, const GraphCapture* sibling) {
    if (!has_memory) throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "no memory is left");
    return make_graph_capture(placement, sibling);
  });
  Decode good(*transformer_, *cache_, kKeysMax, make_graph_capture);
  const at::Tensor want = step(good)->clone();
  const auto first = step(decode);
  ASSERT_TRUE(first.has_value());
  EXPECT_TRUE(first->equal(want));
  EXPECT_EQ(decode.problem(), "");
  has_memory = true;
  int ordinary = 0;
  std::optional<at::Tensor> later;
  while (!(later = step(decode)) && ordinary < 2000) ++ordinary;
  EXPECT_EQ(ordinary, 999);
  EXPECT_TRUE(later->equal(want));
  EXPECT_TRUE(step(decode)->equal(want)) << "played";
}

TEST_F(GraphCaptureTest, MoreKeysThanMayBeGatheredThenAnOrdinaryStep) {
  Decode decode(*transformer_, *cache_, 63, make_graph_capture);
  EXPECT_FALSE(step(decode).has_value()) << "a block has 64";
}

}  // namespace
}  // namespace tuft::engine::torch
