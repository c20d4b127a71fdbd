#include "engine/lora.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/tests/tiny_model.h"

namespace tuft::engine {
namespace {

using ::testing::ElementsAre;

TEST(LoraSpec, TrainFlagsThenTheirTargetModulesInOrder) {
  LoraSpec spec = tiny_lora();
  EXPECT_EQ(spec.target_modules().size(), 8U);
  spec.train_mlp = false;
  EXPECT_THAT(spec.target_modules(), ElementsAre(TargetModule::kQ, TargetModule::kK, TargetModule::kV, TargetModule::kO,
                                                 TargetModule::kLmHead));
  spec.train_attn = false;
  spec.train_unembed = false;
  EXPECT_TRUE(spec.target_modules().empty());
  EXPECT_FLOAT_EQ(spec.scale(), 2.0F);
}

TEST(LoraLayers, IndexExistsForTrainedLayersOnly) {
  const ModelSpec model = tiny_model();
  for (int flags = 0; flags < 8; ++flags) {
    LoraSpec spec = tiny_lora();
    spec.train_attn = (flags & 1) != 0;
    spec.train_mlp = (flags & 2) != 0;
    spec.train_unembed = (flags & 4) != 0;
    const std::vector<LoraLayer> places = lora_layers(model, spec);
    for (size_t i = 0; i < places.size(); ++i) {
      EXPECT_EQ(lora_layer_index(model.layers, spec, places[i].module, places[i].layer), static_cast<int>(i)) << flags;
    }
    EXPECT_EQ(lora_layer_index(model.layers, spec, TargetModule::kK, 1) >= 0, spec.train_attn);
    EXPECT_EQ(lora_layer_index(model.layers, spec, TargetModule::kUp, 1) >= 0, spec.train_mlp);
    EXPECT_EQ(lora_layer_index(model.layers, spec, TargetModule::kLmHead, 0) >= 0, spec.train_unembed);
  }
}

TEST(CheckAdapter, MismatchIsNamed) {
  const ModelSpec model = tiny_model();
  const AdapterState good = make_adapter(model, tiny_lora());
  EXPECT_TRUE(check_adapter(model, good).ok());
  const auto code_after = [&](const auto& change) {
    AdapterState state = good;
    change(state);
    const Status status = check_adapter(model, state);
    return status.ok() ? std::string() : status.error().reason;
  };
  EXPECT_EQ(code_after([](AdapterState& state) { state.spec.rank = 0; }), "adapter_rank");
  EXPECT_EQ(code_after([](AdapterState& state) { state.spec.alpha = NAN; }), "adapter_rank");
  EXPECT_EQ(code_after([](AdapterState& state) { state.tensors.pop_back(); }), "adapter_shape");
  EXPECT_EQ(code_after([](AdapterState& state) { state.tensors[3].b.pop_back(); }), "adapter_shape");
  EXPECT_EQ(code_after([](AdapterState& state) { state.tensors[3].layer = 1; }), "adapter_shape");
  EXPECT_EQ(code_after([](AdapterState& state) { state.gradients.resize(1); }), "gradient_shape");
  EXPECT_EQ(code_after([](AdapterState& state) { state.has_optimizer = true; }), "optimizer_shape");
  EXPECT_EQ(code_after([&](AdapterState& state) { state.gradients = good.tensors; }), "");
}

TEST(MakeAdapter, TensorsThenOrderedByLayerAndShaped) {
  const ModelSpec model = tiny_model();
  const AdapterState state = make_adapter(model, tiny_lora());
  ASSERT_EQ(state.tensors.size(), 15U);
  EXPECT_EQ(state.tensors[8].module, TargetModule::kK);
  EXPECT_EQ(state.tensors[8].layer, 1);
  EXPECT_EQ(state.tensors[14].module, TargetModule::kLmHead);
  EXPECT_EQ(state.tensors[14].layer, 0);
  for (const LoraTensor& tensor : state.tensors) {
    const ModuleShape shape = module_shape(model, tensor.module);
    EXPECT_EQ(tensor.a.size(), static_cast<size_t>(3 * shape.in));
    EXPECT_EQ(tensor.b.size(), static_cast<size_t>(3 * shape.out));
    const float bound = 1.0F / std::sqrt(static_cast<float>(shape.in));
    EXPECT_TRUE(std::all_of(tensor.a.begin(), tensor.a.end(), [&](float x) { return std::fabs(x) < bound; }));
    EXPECT_TRUE(std::all_of(tensor.b.begin(), tensor.b.end(), [](float x) { return x == 0.0F; }));
  }
  EXPECT_FALSE(state.has_optimizer);
}

TEST(MakeAdapter, SeedThenItAloneDecidesTheBits) {
  const ModelSpec model = tiny_model();
  LoraSpec spec = tiny_lora();
  const AdapterState first = make_adapter(model, spec);
  EXPECT_EQ(first.tensors[0].a, make_adapter(model, spec).tensors[0].a);
  EXPECT_NE(first.tensors[0].a, first.tensors[7].a);
  // The result does not depend on which other modules are trained.
  spec.train_attn = false;
  EXPECT_EQ(first.tensors[4].a, make_adapter(model, spec).tensors[0].a);
  spec.seed += 1;
  EXPECT_NE(first.tensors[4].a, make_adapter(model, spec).tensors[0].a);
}

TEST(MakeAdapter, ManyValuesThenUniform) {
  ModelSpec model = tiny_model();
  model.hidden_size = 4096;
  LoraSpec spec = tiny_lora();
  spec.rank = 16;
  const std::vector<float> a = make_adapter(model, spec).tensors[0].a;
  double sum = 0;
  double squares = 0;
  for (const float x : a) {
    sum += x;
    squares += double{x} * x;
  }
  const auto count = static_cast<double>(a.size());
  EXPECT_NEAR(sum / count, 0.0, 4e-5 * 4);
  EXPECT_NEAR(squares / count * 4096, 1.0 / 3.0, 0.01);
  EXPECT_GT(*std::max_element(a.begin(), a.end()), 0.99F / 64);
  EXPECT_LT(*std::min_element(a.begin(), a.end()), -0.99F / 64);
}

// The bits are part of the contract: a run repeated elsewhere starts from the same adapter.
TEST(MakeAdapter, KnownSeedThenKnownBits) {
  LoraSpec spec = tiny_lora();
  spec.seed = 1;
  const AdapterState state = make_adapter(tiny_model(), spec);
  EXPECT_EQ(state.tensors[0].a[0], 0x1.183c480000000p-3F);
  EXPECT_EQ(state.tensors[0].a[23], 0x1.8d6a1a0000000p-4F);
  EXPECT_EQ(state.tensors[13].a[2], 0x1.b43db80000000p-3F);
}

}  // namespace
}  // namespace tuft::engine
