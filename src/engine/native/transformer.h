// The transformer block of Llama, Qwen2 and Qwen3, forward and backward:
//   x += o(attention(rope(norm(q(n))), rope(norm(k(n))), v(n)))   with n = rms_norm(x)
//   x += down(silu(gate(n)) * up(n))                              with n = rms_norm(x)
// The base weights are frozen; the backward pass adds only to the gradients of the adapters.
#pragma once

#include <array>
#include <vector>

#include "engine/native/batch.h"
#include "engine/native/lora_linear.h"
#include "engine/native/weights.h"
#include "engine/rope.h"

namespace tuft::engine::native {

// The activations of one block that its forward pass stores, row-major.
struct BlockActivations {
  float* input = nullptr;  // [rows][hidden]
  float* q = nullptr;      // [rows][heads * head_dim], before norm and rotation
  float* k = nullptr;      // [rows][kv_heads * head_dim], before norm and rotation
  float* v = nullptr;
  float* attention = nullptr;  // [rows][heads * head_dim]
  float* logsumexp = nullptr;  // [rows][heads]; null: not requested
  float* middle = nullptr;     // [rows][hidden], after attention
  float* gate = nullptr;       // [rows][intermediate]
  float* up = nullptr;
  std::array<LoraHidden, kBlockModules.size()> hidden;
};

class Transformer {
 public:
  // All arguments must outlive it. `scratch` is used only during calls.
  Transformer(const ModelSpec& spec, const Weights& weights, Gemm& gemm, Arena& scratch);

  // Takes the memory of one block's activations from `arena`. The caller sets `input`.
  BlockActivations allocate(Arena& arena, int rows, bool with_logsumexp) const;
  static size_t activation_floats(const ModelSpec& spec);  // size of allocate() for one row

  void embed(const Batch& batch, float* x);
  // Writes the keys and values of the batch's rows to layer `kv_layer` of their sequences' cache, and the block's
  // output to `output`, which may be activations.input. Allocates LoRA rows from `keep`.
  void forward(const Batch& batch, int layer, int kv_layer, BlockActivations& activations, float* output, Arena& keep);
  // Replaces dx, the gradient of the block's output, by the gradient of its input. If `to_input` is false, because
  // nothing below can be trained, dx becomes undefined.
  void backward(const Batch& batch, int layer, BlockActivations& activations, bool to_input, float* dx);

  // The memory of attention, which each thread keeps for the next time: returns its size, and gives it back.
  size_t thread_floats() const;
  void give_thread_memory_back();

  // Returns the offset of a layer and head in a block of the cache, in floats; for layer == layers, the block size.
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
  // Applies norm and rotation to the heads of one row: to = rope(norm(from)).
  void rotate_heads(const float* from, const Floats& weight, int heads, int position, float* to) const;
  // Replaces dy, the gradient of rope(norm(from)), by the gradient of `from`.
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
  int group_;  // query heads per key-value head
  float eps_;
  float attention_scale_;
  std::vector<Floats> thread_scratch_;
};

}  // namespace tuft::engine::native
