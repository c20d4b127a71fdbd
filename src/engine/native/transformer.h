// The transformer block of Llama, Qwen2 and Qwen3, forward and backward:
//   x += o(attention(rope(norm(q(n))), rope(norm(k(n))), v(n)))   with n = rms_norm(x)
//   x += down(silu(gate(n)) * up(n))                              with n = rms_norm(x)
// The base weights are frozen; the backward pass adds to the adapters' gradients only.
#pragma once

#include <array>
#include <vector>

#include "engine/native/batch.h"
#include "engine/native/lora_linear.h"
#include "engine/native/weights.h"
#include "engine/rope.h"

namespace tuft::engine::native {

// What the forward pass of one block leaves behind, row-major.
struct BlockActivations {
  float* input = nullptr;  // [rows][hidden]
  float* q = nullptr;      // [rows][heads * head_dim], before norm and rotation
  float* k = nullptr;      // [rows][kv_heads * head_dim], the same
  float* v = nullptr;
  float* attention = nullptr;   // [rows][heads * head_dim]
  float* normalizer = nullptr;  // [rows][heads]; null: not wanted
  float* middle = nullptr;      // [rows][hidden], after attention
  float* gate = nullptr;        // [rows][intermediate]
  float* up = nullptr;
  std::array<LoraHidden, kBlockSites.size()> hidden;
};

class Transformer {
 public:
  // All outlive it. `scratch` is used inside the calls only.
  Transformer(const ModelSpec& spec, const Weights& weights, Gemm& gemm, Arena& scratch);

  // Pointers of one block's activations out of `arena`; `input` is left to the caller.
  BlockActivations allocate(Arena& arena, int rows, bool with_normalizer) const;
  static size_t activation_floats(const ModelSpec& spec);  // of allocate() and one row

  void embed(const Batch& batch, float* x);
  // Writes the keys and values of the batch's rows to layer `kv_layer` of their sequences' cache, and `output`, which
  // may be activations.input. LoRA rows are taken from `keep`.
  void forward(const Batch& batch, int layer, int kv_layer, BlockActivations& activations, float* output, Arena& keep);
  // Turns dx, the gradient of the block's output, into that of its input, or leaves it undefined where `to_input` is
  // false because nothing below can be trained.
  void backward(const Batch& batch, int layer, BlockActivations& activations, bool to_input, float* dx);

  // Offset of a layer and head in a block of cache, and the size of a block.
  ptrdiff_t kv_offset(int layer, int kv_head) const {
    return (static_cast<ptrdiff_t>(layer) * spec_.kv_heads + kv_head) * kv_head_floats(spec_.head_dim);
  }

  void normalize(const float* x, const Floats& weight, int rows, float* y, float* inverse);
  void normalize_backward(const float* x, const Floats& weight, const float* inverse, const float* dy, int rows,
                          bool add, float* dx);

 private:
  void attention_forward(const Batch& batch, int layer, int kv_layer, const BlockActivations& activations);
  void attend_tile(const Batch& batch, const SequenceRows& sequence, int kv_layer, int kv_head, int tile,
                   const float* q, const BlockActivations& activations, float* scratch) const;
  void store_keys(const Batch& batch, const SequenceRows& sequence, int row, int layer, int kv_layer,
                  const BlockActivations& activations) const;
  // Norm and rotation of one row's heads: to = rope(norm(from)).
  void rotate_heads(const float* from, const Floats& weight, int heads, int position, float* to) const;
  // The other way: to = gradient of `from`, given dy that may be `to`.
  void rotate_heads_backward(const float* from, const Floats& weight, int heads, int position, float* dy) const;
  void attention_backward(const Batch& batch, int layer, const BlockActivations& activations, const float* dout,
                          float* dq, float* dk, float* dv);
  void mlp_backward(const Batch& batch, int layer, BlockActivations& activations, float* dx);

  const ModelSpec& spec_;
  const Weights& weights_;
  Gemm& gemm_;
  Arena& scratch_;
  LoraLinear linear_;
  Rope rope_;
  int group_;  // query heads of a key-value head
  float eps_;
  float attention_scale_;
  std::vector<Floats> thread_scratch_;
};

}  // namespace tuft::engine::native
