// ModelCost: the minimum number of floating-point operations of a dense decoder with LoRA adapters, computed from its
// shapes. A multiply-add counts as two, causal attention reaches each token and those before it, and recomputation does
// not count. Norms, activation functions and softmax are left out: they are below one percent.
#pragma once

#include <cstdint>

#include "engine/lora.h"
#include "engine/model_spec.h"

namespace tuft::engine {

// The number of values in A and B of an adapter.
struct AdapterWeights {
  int64_t blocks = 0;  // used by every token
  int64_t head = 0;    // used only by tokens with logits
};
AdapterWeights adapter_weights(const ModelSpec& model, const LoraSpec& spec);

class ModelCost {
 public:
  explicit ModelCost(const ModelSpec& model);

  int64_t block_weights() const { return blocks_; }  // of the linear layers of all blocks
  int64_t head_weights() const { return head_; }
  // Returns the number of positions whose attention costs one token as much as the base's products with its weights.
  int64_t positions_per_token() const;

  // Returns the cost of positions [begin, begin + tokens) in all blocks: 2 per weight and token, and attention.
  double forward(const AdapterWeights& adapter, int64_t begin, int64_t tokens) const;
  // Returns the cost of a whole sequence from position 0. The base is frozen and costs 2 per weight and token, for the
  // gradient of activations; adapter weights cost 4; attention costs twice that of forward().
  double backward(const AdapterWeights& adapter, int64_t tokens) const;
  // Return the cost of `rows` tokens in the output layer.
  double head_forward(const AdapterWeights& adapter, int64_t rows) const;
  double head_backward(const AdapterWeights& adapter, int64_t rows) const;

 private:
  double attention(int64_t begin, int64_t tokens) const;

  int64_t blocks_ = 0;
  int64_t head_ = 0;
  double per_pair_ = 0;  // of a token and one that it attends to, in all layers
};

}  // namespace tuft::engine
