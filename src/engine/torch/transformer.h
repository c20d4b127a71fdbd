// Transformer: the transformer of Llama, Qwen2 and Qwen3 from operations of libtorch, which record the gradient graph
// in gradient mode:
//   x += o(attention(rope(norm(q(n))), rope(norm(k(n))), v(n)))   with n = rms_norm(x)
//   x += down(silu(gate(n)) * up(n))                              with n = rms_norm(x)
// x is f32; intermediate results have the type of activations. Internal. Functions may throw libtorch's exceptions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/rope.h"
#include "engine/torch/attention.h"
#include "engine/torch/kv_cache.h"
#include "engine/torch/lora_plan.h"
#include "engine/torch/weights.h"

namespace tuft::engine::torch {

// The rows of a pass or step.
struct Batch {
  at::Tensor tokens;   // [rows]
  at::Tensor cosines;  // [rows, 1, 1, head_dim / 2]
  at::Tensor sines;    // [rows, 1, 2, head_dim / 2]: negated, and as they are
  LoraPlan lora;
  Spans spans;
  // Set in a step; null in a pass, whose keys and values are those of the rows.
  KvCache* cache = nullptr;
  at::Tensor write_slots;
  at::Tensor read_slots;  // of all sequences, concatenated
  // [rows, 1, 1, keys] in a step of fixed shape with one row per sequence: which of its keys exist. Undefined: `spans`
  // applies.
  at::Tensor known;
};

// Logits are computed in pieces of rows of at most this size, so that memory does not grow with rows times vocabulary.
inline constexpr int64_t kLogitsBytes = int64_t{64} << 20;
inline constexpr int64_t kLogitsBytesCuda = int64_t{512} << 20;

class Transformer {
 public:
  Transformer(ModelSpec spec, Weights weights, const Placement& placement)
      : spec_(std::move(spec)),
        weights_(std::move(weights)),
        placement_(placement),
        rope_(spec_),
        attention_(spec_, placement) {}
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  const ModelSpec& spec() const { return spec_; }
  const Placement& placement() const { return placement_; }
  const Attention& attention() const { return attention_; }
  int64_t logits_rows_max() const;

  // The tokens of one sequence in a new batch.
  struct Rows {
    Adapter* adapter = nullptr;
    std::span<const int32_t> tokens;
    int position = 0;  // of the first token
  };
  Batch make_batch(std::span<const Rows> rows);
  // Makes a batch from tensors on the device, without spans. Requires extend_rope() for all positions.
  Batch make_batch(const at::Tensor& tokens, const at::Tensor& positions, LoraPlan lora) const;
  // Makes positions [0, count) available. May move the tables.
  void extend_rope(int count);

  at::Tensor embed(const Batch& batch) const;  // [rows, hidden]
  // In gradient mode, gradients reach x, if it requires them, and the plan (LoraPlan::collect()).
  at::Tensor block(int layer, const at::Tensor& x, const Batch& batch) const;
  at::Tensor final_norm(const at::Tensor& x) const;   // in the activations' type
  at::Tensor logits(const at::Tensor& normed) const;  // [rows, vocab] f32, without adapters
  // Returns the gradient of `normed`. Both are in the activations' type.
  at::Tensor logits_backward(const at::Tensor& dlogits) const;
  // Returns how many bytes one row of one block keeps for the backward pass, without the small tensors.
  int64_t activation_bytes() const;

 private:
  // Takes f32 and returns it. Over the last dimension, with a weight for each of its elements, or for each head and
  // element.
  at::Tensor norm(const at::Tensor& x, const at::Tensor& weight) const;
  // Takes queries and keys, [rows, heads + kv_heads, head_dim]; `weight` is that of QK-norm.
  at::Tensor rotate(const at::Tensor& x, const at::Tensor& weight, const Batch& batch) const;
  at::Tensor attend(int layer, const at::Tensor& qkv, const Batch& batch) const;

  ModelSpec spec_;
  Weights weights_;
  Placement placement_;
  Rope rope_;
  int rope_count_ = 0;
  at::Tensor rope_cosines_;  // [positions, head_dim / 2]
  at::Tensor rope_sines_;    // [positions, 2 * (head_dim / 2)]
  Attention attention_;
};

}  // namespace tuft::engine::torch
