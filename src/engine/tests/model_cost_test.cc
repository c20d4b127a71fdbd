// Compares with counts made by hand.
#include "engine/model_cost.h"

#include <gtest/gtest.h>

namespace tuft::engine {
namespace {

// A block: q and o 4 x 6, k and v 4 x 3, three of 4 x 8: 168. Two blocks: 336. The head: 40.
ModelSpec small_model() {
  ModelSpec model;
  model.vocab_size = 10;
  model.hidden_size = 4;
  model.intermediate_size = 8;
  model.layers = 2;
  model.heads = 2;
  model.kv_heads = 1;
  model.head_dim = 3;
  return model;
}

TEST(ModelCost, CountsTheWeightsOfLinearLayers) {
  const ModelCost cost(small_model());
  EXPECT_EQ(cost.block_weights(), 336);
  EXPECT_EQ(cost.head_weights(), 40);
}

TEST(ModelCost, AdapterThenItsModulesInEveryBlockAndTheHeadOnce) {
  LoraSpec spec;
  spec.rank = 2;
  const AdapterWeights all = adapter_weights(small_model(), spec);
  EXPECT_EQ(all.blocks, 2 * 2 * ((4 + 6) + (4 + 3) + (4 + 3) + (6 + 4) + 3 * (4 + 8)));
  EXPECT_EQ(all.head, 2 * (4 + 10));
  EXPECT_EQ(all.blocks + all.head, parameters_of(small_model(), spec));
  spec.train_mlp = spec.train_unembed = false;
  const AdapterWeights attention = adapter_weights(small_model(), spec);
  EXPECT_EQ(attention.blocks, 2 * 2 * (10 + 7 + 7 + 10));
  EXPECT_EQ(attention.head, 0);
}

TEST(ModelCost, ForwardCostsTwoPerWeightAndAttention) {
  const ModelCost cost(small_model());
  const double pair = 4 * 6 * 2;  // channels, layers
  EXPECT_DOUBLE_EQ(cost.forward({}, 0, 3), 2 * 336 * 3 + pair * (1 + 2 + 3));
  EXPECT_DOUBLE_EQ(cost.forward({}, 5, 1), 2 * 336 + pair * 6);
  EXPECT_DOUBLE_EQ(cost.forward({.blocks = 100}, 0, 1), 2 * 436 + pair);
  EXPECT_DOUBLE_EQ(cost.head_forward({.head = 28}, 2), 2 * (40 + 28) * 2);
}

TEST(ModelCost, PositionsPerTokenMakeItsAttentionAsExpensiveAsItsWeights) {
  EXPECT_EQ(ModelCost(small_model()).positions_per_token(), 16) << "752 / 48";
  ModelSpec qwen3;  // 0.6B
  qwen3.vocab_size = 151'936;
  qwen3.hidden_size = 1024;
  qwen3.intermediate_size = 3072;
  qwen3.layers = 28;
  qwen3.heads = 16;
  qwen3.kv_heads = 8;
  qwen3.head_dim = 128;
  EXPECT_EQ(ModelCost(qwen3).positions_per_token(), 5197);
}

TEST(ModelCost, PiecesCostAsMuchAsTheWholeSequence) {
  const ModelCost cost(small_model());
  EXPECT_DOUBLE_EQ(cost.forward({}, 0, 3) + cost.forward({}, 3, 4) + cost.forward({}, 7, 1), cost.forward({}, 0, 8));
}

TEST(ModelCost, BackwardHasNoGradientOfTheBase) {
  const ModelCost cost(small_model());
  EXPECT_DOUBLE_EQ(cost.backward({.blocks = 100}, 3), (2 * 336 + 4 * 100) * 3 + 2 * 48 * (1 + 2 + 3));
  EXPECT_DOUBLE_EQ(cost.head_backward({.head = 28}, 1), 2 * 40 + 4 * 28);
}

}  // namespace
}  // namespace tuft::engine
