// Tests the options of this back end. Its results and the contract of the ports are tested with the other back ends in
// tests/parity.
#include "engine/torch/torch_engine.h"

#include <cmath>
#include <optional>
#include <utility>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/temp_dir.h"
#include "engine/init_model.h"
#include "engine/torch/tests/memory_runs_out.h"

namespace tuft::engine {
namespace {

class TorchEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    InitModelOptions tiny;
    tiny.hidden_size = 32;
    tiny.intermediate_size = 64;
    tiny.layers = 3;
    tiny.heads = 4;
    tiny.kv_heads = 2;
    tiny.head_dim = 8;
    ASSERT_TRUE(init_model(directory_ / "model", tiny).ok());
    for (int i = 0; i < 40; ++i) tokens_.push_back(i * 37 % 250);
  }
  std::unique_ptr<Engine> make(TorchOptions options = {}) {
    options.threads = 1;
    auto engine = make_torch_engine(directory_ / "model", options);
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    LoraSpec spec;
    spec.rank = 4;
    spec.alpha = 8;
    AdapterState state = make_adapter((*engine)->model(), spec);
    for (LoraTensor& tensor : state.tensors) {
      for (size_t i = 0; i < tensor.b.size(); ++i) tensor.b[i] = 0.05F * std::sin(static_cast<float>(i));
    }
    EXPECT_TRUE((*engine)->adapters().create(id_, state).ok());
    return std::move(*engine);
  }
  Pack pack_of() const {
    Pack pack;
    pack.tokens = tokens_;
    pack.segments = {{id_, 0, 25}, {id_, 25, 40}};
    for (int row = 0; row < 39; ++row) pack.targets.push_back({row, tokens_[static_cast<size_t>(row) + 1]});
    return pack;
  }
  std::vector<float> train(Engine& engine) {
    const Pack pack = pack_of();
    std::vector<float> logprobs(pack.targets.size());
    EXPECT_TRUE(engine.training().forward(pack, true, logprobs).ok());
    EXPECT_TRUE(engine.training().backward(std::vector<float>(logprobs.size(), -1.0F)).ok());
    return logprobs;
  }
  static std::vector<float> flat(const std::vector<LoraTensor>& tensors) {
    std::vector<float> all;
    for (const LoraTensor& tensor : tensors) {
      all.insert(all.end(), tensor.a.begin(), tensor.a.end());
      all.insert(all.end(), tensor.b.begin(), tensor.b.end());
    }
    return all;
  }
  std::vector<float> gradients(Engine& engine) { return flat(engine.adapters().gradients(id_).value()); }
  std::vector<float> weights(Engine& engine) {
    return flat(engine.adapters().export_state(id_, false).value().tensors);
  }
  // |left - right| / |right|
  static double distance(const std::vector<float>& left, const std::vector<float>& right) {
    double difference = 0;
    double size = 0;
    for (size_t i = 0; i < right.size(); ++i) {
      difference += std::pow(static_cast<double>(left[i]) - right[i], 2);
      size += std::pow(static_cast<double>(right[i]), 2);
    }
    return std::sqrt(difference / size);
  }

  TempDir directory_;
  const AdapterId id_{"a"};
  std::vector<int32_t> tokens_;
};

TEST_F(TorchEngineTest, MissingDeviceThenTheErrorNamesTheAvailableOnes) {
  for (const char* device : {"gpu", "cuda:", "cuda:x", "cuda:1x", "cpu:0", ""}) {
    const auto engine = make_torch_engine(directory_ / "model", {.device = device});
    ASSERT_FALSE(engine.ok()) << device;
    EXPECT_EQ(engine.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(engine.error().message.find("use cpu, cuda or cuda:N"), std::string::npos) << engine.error().message;
  }
  const auto engine = make_torch_engine(directory_ / "model", {.device = "cuda:99"});
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.error().message.find(describe_libtorch()), std::string::npos) << engine.error().message;
}

TEST_F(TorchEngineTest, ActivationsOverTheLimitThenTheSameGradients) {
  const auto kept = make();
  const std::vector<float> logprobs = train(*kept);
  // All blocks are recomputed, some, or none.
  for (int64_t limit = 1; limit < int64_t{1} << 30; limit *= 8) {
    const auto limited = make({.activation_bytes_max = limit});
    EXPECT_LT(distance(train(*limited), logprobs), 1e-6) << limit;
    EXPECT_LT(distance(gradients(*limited), gradients(*kept)), 1e-5) << limit;
  }
}

TEST_F(TorchEngineTest, MemoryRunsOutAnywhereThenThePassAndTheStepCanBeRepeated) {
  const auto kept = make();
  train(*kept);
  const auto engine = make({.activation_bytes_max = 30'000});  // some blocks are recomputed
  ASSERT_TRUE(engine->adapters().mark_gradients(id_).ok());
  const Pack pack = pack_of();
  std::vector<float> logprobs(pack.targets.size());
  const std::vector<float> dloss(pack.targets.size(), -1.0F);
  int failures = 0;
  for (bool again = true; again; ++failures) {
    std::optional<MemoryRunsOut> memory(failures);
    Status status = engine->training().forward(pack, true, logprobs);
    if (status.ok()) status = engine->training().backward(dloss);
    again = memory->happened();
    memory.reset();
    ASSERT_EQ(status.ok(), !again);
    if (!again) break;
    ASSERT_EQ(status.error().code, ErrorCode::kResourceExhausted) << status.error().message;
    ASSERT_TRUE(engine->adapters().restore_gradients(id_).ok()) << failures;
    ASSERT_EQ(engine->training().optim_step(id_, {}).value().step, 0) << failures;
  }
  EXPECT_GT(failures, 100);
  EXPECT_LT(distance(gradients(*engine), gradients(*kept)), 1e-5);
  const std::vector<float> before = weights(*engine);
  for (int failures_of_step = 0; engine->adapters().export_state(id_, true).value().moments.step == 0;
       ++failures_of_step) {
    EXPECT_EQ(weights(*engine), before) << "a step that failed has changed them";
    const MemoryRunsOut memory(failures_of_step);
    const auto report = engine->training().optim_step(id_, {.grad_clip_norm = 0.01});
    ASSERT_TRUE(report.ok() || memory.happened()) << report.error().message;
  }
  ASSERT_EQ(kept->training().optim_step(id_, {.grad_clip_norm = 0.01}).value().step, 1);
  EXPECT_EQ(engine->adapters().export_state(id_, true).value().moments.step, 1);
  EXPECT_LT(distance(weights(*engine), weights(*kept)), 1e-4);
}

// Uses the types of a GPU on the CPU.
TEST_F(TorchEngineTest, Bf16ActivationsThenCloseToF32) {
  const auto wide = make();
  const auto narrow = make({.weights_dtype = WeightsDtype::kBfloat16, .activations = WeightsDtype::kBfloat16});
  EXPECT_EQ(narrow->weights_dtype(), "bf16");
  EXPECT_LT(distance(train(*narrow), train(*wide)), 0.01);
  EXPECT_LT(distance(gradients(*narrow), gradients(*wide)), 0.05);
  const AdapterMemory memory = narrow->adapters().memory();
  const LoraSpec spec = narrow->adapters().export_state(id_, false).value().spec;
  EXPECT_LE(memory.weights, narrow->adapters().bytes_of(spec, false));
  EXPECT_EQ(2 * narrow->decoding().kv_usage().block, wide->decoding().kv_usage().block);
}

TEST_F(TorchEngineTest, StepsInBf16ThenLogprobsOfForwardWithinItsRounding) {
  const auto engine = make({.weights_dtype = WeightsDtype::kBfloat16, .activations = WeightsDtype::kBfloat16});
  Pack pack;
  pack.tokens = tokens_;
  pack.segments = {{id_, 0, 40}};
  for (int row = 0; row < 39; ++row) pack.targets.push_back({row, tokens_[static_cast<size_t>(row) + 1]});
  std::vector<float> whole(pack.targets.size());
  ASSERT_TRUE(engine->training().forward(pack, false, whole).ok());
  const SequenceId sequence = engine->decoding().open(id_, 0).value();
  std::vector<float> stepped;
  for (size_t at = 0; at < 39; ++at) {
    const Feed feed{sequence, std::span(tokens_).subspan(at, 1), 1};
    ASSERT_TRUE(engine->decoding()
                    .step({&feed, 1}, for_each_row([&](size_t, int, std::span<const float> logits) {
                            double sum = 0;
                            for (const float x : logits) sum += std::exp(static_cast<double>(x));
                            const auto next = static_cast<size_t>(tokens_[at + 1]);
                            stepped.push_back(static_cast<float>(logits[next] - std::log(sum)));
                          }))
                    .ok());
  }
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(stepped[i], whole[i], 0.05) << i;
}

TEST_F(TorchEngineTest, PlanKvSetsTheLimit) {
  int64_t bytes_per_token = 0;
  TorchOptions options;
  options.plan_kv = [&](const ModelSpec& model, int64_t bytes) -> Result<int64_t> {
    bytes_per_token = bytes;
    EXPECT_EQ(model.layers, 3);
    return 10 * 64 * bytes;
  };
  const auto engine = make(options);
  EXPECT_EQ(bytes_per_token, 2 * 4 * 3 * 2 * 8);
  EXPECT_EQ(engine->decoding().kv_usage().limit, 10 * 64 * bytes_per_token);
  options.plan_kv = [](const ModelSpec&, int64_t) -> Result<int64_t> { return invalid_argument("too little"); };
  EXPECT_EQ(make_torch_engine(directory_ / "model", options).error().message, "too little");
}

TEST_F(TorchEngineTest, WorkThenItsTimeIsCounted) {
  const auto engine = make();
  EXPECT_EQ(engine->device_times().forward, 0);
  train(*engine);
  EXPECT_GT(engine->device_times().forward, 0);
  EXPECT_GT(engine->device_times().backward, 0);
  EXPECT_EQ(engine->device_times().optim_step, 0);
  ASSERT_TRUE(engine->training().optim_step(id_, {}).ok());
  EXPECT_GT(engine->device_times().optim_step, 0);
}

}  // namespace
}  // namespace tuft::engine
