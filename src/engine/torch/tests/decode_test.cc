// Tests that steps of fixed shape give the results of ordinary steps. On a CPU replay() runs the work again, so that
// all but the capture itself is tested on any machine.
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "engine/init_model.h"
#include "engine/torch/tests/memory_runs_out.h"
#include "engine/torch/torch_engine.h"

namespace tuft::engine {
namespace {

constexpr int64_t kKvBytes = int64_t{8} << 20;

struct Device {
  const char* name;  // of the test
  const char* device;
  WeightsDtype dtype;
  double error;  // of a logit
};

class DecodeTest : public ::testing::TestWithParam<Device> {
 protected:
  using Logits = std::vector<std::vector<float>>;  // by sequence

  void SetUp() override {
    if (std::string(GetParam().device) != "cpu" && torch_cuda_devices() == 0) {
      GTEST_SKIP() << "there is no " << GetParam().device << " here: libtorch " << describe_libtorch();
    }
    InitModelOptions tiny;
    tiny.hidden_size = 32;
    tiny.intermediate_size = 64;
    tiny.layers = 2;
    tiny.heads = 4;
    tiny.kv_heads = 2;
    tiny.head_dim = 8;
    tiny.max_position = 256;
    ASSERT_TRUE(init_model(directory_ / "model", tiny).ok());
    for (const bool recorded : {false, true}) {
      auto engine = make_torch_engine(directory_ / "model", options(recorded, kKvBytes));
      ASSERT_TRUE(engine.ok()) << engine.error().message;
      (recorded ? captured_ : plain_) = std::move(*engine);
    }
  }

  static TorchOptions options(bool captures, int64_t kv_bytes_max) {
    return {.device = GetParam().device,
            .threads = 1,
            .weights_dtype = GetParam().dtype,
            .kv_bytes_max = kv_bytes_max,
            .capture_decode = captures};
  }

  AdapterState adapter(int rank, int seed) const {
    LoraSpec spec;
    spec.rank = rank;
    spec.alpha = 8;
    AdapterState state = make_adapter(plain_->model(), spec);
    for (LoraTensor& tensor : state.tensors) {
      for (size_t i = 0; i < tensor.b.size(); ++i)
        tensor.b[i] = 0.05F * std::sin(static_cast<float>(i) + static_cast<float>(seed));
    }
    return state;
  }
  void create(const std::string& name, const AdapterState& state) {
    for (Engine* engine : both()) ASSERT_TRUE(engine->adapters().create(AdapterId(name), state).ok());
  }
  std::array<Engine*, 2> both() const { return {plain_.get(), captured_.get()}; }

  // Opens a sequence of an adapter ("": the base model) with a prompt of `length` tokens, in both engines.
  void open(const std::string& adapter, int length) {
    const auto id = adapter.empty() ? std::nullopt : std::optional(AdapterId(adapter));
    std::vector<int32_t> prompt;
    for (int i = 0; i < length; ++i) prompt.push_back((i * 37 + length) % 250);
    std::array<SequenceId, 2> pair{};
    for (size_t i = 0; i < 2; ++i) {
      pair[i] = both()[i]->decoding().open(id, 0).value();
      const Feed feed{pair[i], prompt, 1};
      ASSERT_TRUE(
          both()[i]->decoding().step({&feed, 1}, for_each_row([](size_t, int, std::span<const float>) {})).ok());
    }
    sequences_.push_back(pair);
  }

  // Feeds one token to each of `which`.
  Logits step(size_t engine, const std::vector<size_t>& which, int32_t token) {
    std::vector<int32_t> tokens;
    for (const size_t sequence : which) tokens.push_back((token + static_cast<int32_t>(sequence) * 11) % 250);
    std::vector<Feed> feeds;
    for (size_t i = 0; i < which.size(); ++i) {
      feeds.push_back({sequences_[which[i]][engine], std::span(tokens).subspan(i, 1), 1});
    }
    Logits logits(which.size());
    const Status status =
        both()[engine]->decoding().step(feeds, for_each_row([&](size_t feed, int, std::span<const float> row) {
                                          logits[feed].assign(row.begin(), row.end());
                                        }));
    EXPECT_TRUE(status.ok());
    return logits;
  }
  // Runs the step on both engines; the capturing one must replay captures if `expected`.
  void expect_same(const std::vector<size_t>& which, int32_t token, bool expected = true) {
    const int64_t before = torch_captured_steps(*captured_);
    const Logits want = step(0, which, token);
    const Logits got = step(1, which, token);
    EXPECT_EQ(torch_captured_steps(*captured_) - before, expected ? 1 : 0);
    for (size_t i = 0; i < which.size(); ++i) {
      ASSERT_EQ(got[i].size(), want[i].size());
      for (size_t j = 0; j < want[i].size(); ++j) {
        if (std::isnan(want[i][j])) {
          ASSERT_TRUE(std::isnan(got[i][j]));
        } else {
          ASSERT_NEAR(got[i][j], want[i][j], GetParam().error) << "sequence " << which[i] << " token " << j;
        }
      }
    }
  }

  TempDir directory_;
  std::unique_ptr<Engine> plain_;
  std::unique_ptr<Engine> captured_;
  std::vector<std::array<SequenceId, 2>> sequences_;
};

TEST_P(DecodeTest, AnyNumberOfSequencesAndAdaptersThenTheOrdinaryLogits) {
  create("a", adapter(4, 1));
  create("b", adapter(4, 2));
  create("c", adapter(4, 3));
  for (const auto& [name, length] :
       {std::pair("a", 3), {"", 70}, {"b", 17}, {"a", 61}, {"c", 5}, {"", 1}, {"b", 64}, {"a", 30}, {"c", 127}}) {
    open(name, length);
  }
  int32_t token = 0;
  for (size_t count = 1; count <= sequences_.size(); ++count) {
    std::vector<size_t> which;
    for (size_t i = 0; i < count; ++i) which.push_back((i * 2 + count) % sequences_.size());
    for (int time = 0; time < 3; ++time) expect_same(which, ++token);
  }
  for (int time = 0; time < 5; ++time) expect_same({1, 3, 5}, ++token);  // across block boundaries
  for (int time = 0; time < 3; ++time) expect_same({1, 5}, ++token);     // no adapter at all
}

TEST_P(DecodeTest, ChangedWeightsAreUsed) {
  create("a", adapter(4, 1));
  create("b", adapter(4, 2));
  open("a", 9);
  open("b", 12);
  expect_same({0, 1}, 1);
  expect_same({0, 1}, 2);
  for (Engine* engine : both()) ASSERT_TRUE(engine->adapters().import_state(AdapterId("a"), adapter(4, 77)).ok());
  expect_same({0, 1}, 3);
  expect_same({1, 0}, 4);
}

TEST_P(DecodeTest, MoreAdaptersThanSlotsThenSlotsAreReplaced) {
  for (int i = 0; i < 6; ++i) {
    create(std::to_string(i), adapter(4, i + 1));
    open(std::to_string(i), 4 + i);
  }
  for (int32_t token = 0; token < 12; ++token) {
    const auto first = static_cast<size_t>(token) % 6;
    expect_same({first, (first + 1) % 6}, token);
    expect_same({first, (first + 2) % 6, (first + 4) % 6}, token + 1);
  }
}

TEST_P(DecodeTest, NanStaysWithItsTenant) {
  AdapterState broken = adapter(4, 2);
  for (LoraTensor& tensor : broken.tensors) tensor.b[0] = std::numeric_limits<float>::quiet_NaN();
  create("good", adapter(4, 1));
  create("broken", broken);
  open("broken", 40);  // its block holds NaN, and the next sequence gets that block
  for (size_t i = 0; i < 2; ++i) both()[i]->decoding().close(sequences_[0][i]);
  open("good", 8);
  open("broken", 8);
  open("", 8);
  for (int32_t token = 1; token < 4; ++token) {
    expect_same({1, 2, 3}, token);
    expect_same({1, 3}, token);
  }
  const Logits logits = step(1, {1, 2, 3}, 9);
  EXPECT_TRUE(std::isfinite(logits[0][0]));
  EXPECT_TRUE(std::isnan(logits[1][0]));
  EXPECT_TRUE(std::isfinite(logits[2][0]));
}

TEST_P(DecodeTest, StepWithoutFixedShapeIsOrdinary) {
  create("a", adapter(4, 1));
  create("wide", adapter(8, 2));
  open("a", 9);
  open("wide", 9);
  open("", 9);
  expect_same({0, 1}, 1, false);  // ranks differ
  expect_same({0, 2}, 2, true);
  expect_same({1}, 3, true);
  const std::vector<int32_t> tokens = {1, 2};
  const Feed feed{sequences_[0][1], tokens, 1};
  const int64_t before = torch_captured_steps(*captured_);
  ASSERT_TRUE(captured_->decoding().step({&feed, 1}, for_each_row([](size_t, int, std::span<const float>) {})).ok());
  EXPECT_EQ(torch_captured_steps(*captured_), before);
}

TEST_P(DecodeTest, ContextsThatAreTooLongTogetherThenTheStepIsDivided) {
  TorchOptions with = options(true, kKvBytes);
  with.gathered_bytes_max = 4096;  // 32 positions in f32, 64 in bf16
  captured_ = make_torch_engine(directory_ / "model", with).value();
  create("a", adapter(4, 1));
  create("b", adapter(4, 2));
  for (const auto& [name, length] : {std::pair("a", 12), {"b", 9}, {"", 100}, {"a", 3}, {"b", 30}, {"", 5}}) {
    open(name, length);
  }
  for (int32_t token = 1; token < 4; ++token) expect_same({0, 1, 2, 3, 4, 5}, token, false);
  expect_same({2}, 4, false);
}

TEST_P(DecodeTest, MemoryRunsOutAnywhereThenTheStepIsOrdinary) {
  if (std::string(GetParam().device) != "cpu") GTEST_SKIP() << "only the memory of the CPU can be taken away";
  int failures = 0;
  for (bool again = true; again; ++failures) {
    captured_ = make_torch_engine(directory_ / "model", options(true, kKvBytes)).value();
    plain_ = make_torch_engine(directory_ / "model", options(false, kKvBytes)).value();
    sequences_.clear();
    create("a", adapter(4, 1));
    open("a", 9);
    open("a", 70);
    const Logits want = step(0, {0, 1}, 5);
    std::optional<MemoryRunsOut> memory(failures);
    const Logits got = step(1, {0, 1}, 5);
    again = memory->happened();
    memory.reset();
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(got[i].size(), want[i].size());
      for (size_t j = 0; j < want[i].size(); ++j) ASSERT_NEAR(got[i][j], want[i][j], GetParam().error) << failures;
    }
    expect_same({1, 0}, 6, !again);  // and no further step of a shape that is not captured is captured
  }
  EXPECT_GT(failures, 100);
}

TEST_P(DecodeTest, WithoutALimitOfTheCacheThenOrdinarySteps) {
  const auto engine = make_torch_engine(directory_ / "model", options(true, 0)).value();
  const SequenceId sequence = engine->decoding().open(std::nullopt, 0).value();
  const std::vector<int32_t> tokens = {1};
  const Feed feed{sequence, tokens, 1};
  ASSERT_TRUE(engine->decoding().step({&feed, 1}, for_each_row([](size_t, int, std::span<const float>) {})).ok());
  EXPECT_EQ(torch_captured_steps(*engine), 0);
}

INSTANTIATE_TEST_SUITE_P(Devices, DecodeTest,
                         ::testing::Values(Device{"cpu", "cpu", WeightsDtype::kFloat32, 1e-4},
                                           Device{"cuda", "cuda:0", WeightsDtype::kFloat32, 1e-4},
                                           Device{"cuda_bf16", "cuda:0", WeightsDtype::kBfloat16, 0.05}),
                         [](const auto& device) { return std::string(device.param.name); });

}  // namespace
}  // namespace tuft::engine
