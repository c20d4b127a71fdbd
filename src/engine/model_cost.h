// What a dense decoder with LoRA adapters has to compute at the least, counted from its shapes: a multiply and an add
// are two, causal attention reaches each token and those before it, and nothing counts that is computed a second time.
// Norms, activation functions and softmax are left out: they are below a percent.
#pragma once

#include <cstdint>

#include "engine/lora.h"
#include "engine/model_spec.h"

namespace tuft::engine {

// Numbers in the A and B of an adapter.
struct AdapterWeights {
  int64_t blocks = 0;  // that every token passes
  int64_t head = 0;    // that only tokens with logits pass
};
AdapterWeights adapter_weights(const ModelSpec& model, const LoraSpec& spec);

class ModelCost {
 public:
  explicit ModelCost(const ModelSpec& model);

  int64_t block_weights() const { return blocks_; }  // of the linear layers of all blocks
  int64_t head_weights() const { return head_; }

  // Tokens at positions [begin, begin + tokens) of a sequence through the blocks: 2 a weight and token, and attention.
  double forward(const AdapterWeights& adapter, int64_t begin, int64_t tokens) const;
  // Of a whole sequence from position 0. The base is frozen: 2 a weight and token for the gradient of activations; 4
  // for weights of the adapter; attention twice that of forward().
  double backward(const AdapterWeights& adapter, int64_t tokens) const;
  // Of `rows` tokens through the output layer.
  double head_forward(const AdapterWeights& adapter, int64_t rows) const;
  double head_backward(const AdapterWeights& adapter, int64_t rows) const;

 private:
  double attention(int64_t begin, int64_t tokens) const;

  int64_t blocks_ = 0;
  int64_t head_ = 0;
  double per_pair_ = 0;  // of a token and one that it attends to, in all layers
};

}  // namespace tuft::engine
