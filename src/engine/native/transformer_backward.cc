#include <algorithm>

#include "engine/native/buffer.h"
#include "engine/native/for_rows.h"
#include "engine/native/ops/rows.h"
#include "engine/native/transformer.h"

namespace tuft::engine::native {
void Transformer::mlp_backward(const Batch& batch, int layer, BlockActivations& activations, float* dx) {
  const ArenaScope scope(scratch_);
  const BlockWeights& block = weights_.blocks[static_cast<size_t>(layer)];
  const int rows = batch.rows;
  const int hidden = spec_.hidden_size;
  const int inner = spec_.intermediate_size;
  auto& lora = activations.hidden;
  float* product = scratch_.take(floats(rows, inner));
  for_rows(gemm_.pool(), rows, 2 * inner, [&](int row) {
    const ptrdiff_t at = offset(row, inner);
    swiglu(activations.gate + at, activations.up + at, inner, product + at);
  });
  float* dproduct = scratch_.take(floats(rows, inner));
  const LinearUse down{&block.down, TargetModule::kDown, layer, dx, &lora[6]};
  linear_.backward({product, rows, inner, batch.runs}, {&down, 1}, dproduct);
  // The gradients overwrite the activations, which are no longer needed.
  for_rows(gemm_.pool(), rows, 4 * inner, [&](int row) {
    const ptrdiff_t at = offset(row, inner);
    swiglu_backward(activations.gate + at, activations.up + at, dproduct + at, inner, activations.gate + at,
                    activations.up + at);
  });
  float* normed = scratch_.take(floats(rows, hidden));
  float* inverse = scratch_.take(static_cast<size_t>(rows));
  normalize(activations.middle, block.mlp_norm, rows, normed, inverse);
  float* dnormed = scratch_.take(floats(rows, hidden));
  const LinearUse uses[] = {{&block.gate, TargetModule::kGate, layer, activations.gate, &lora[4]},
                            {&block.up, TargetModule::kUp, layer, activations.up, &lora[5]}};
  linear_.backward({normed, rows, hidden, batch.runs}, uses, dnormed);
  normalize_backward(activations.middle, block.mlp_norm, inverse, dnormed, rows, true, dx);
}

void Transformer::rotate_heads_backward(const float* from, const Floats& weight, int heads, int position,
                                        float* dy) const {
  const int width = spec_.head_dim;
  float normed[kHeadDimMax];
  for (int head = 0; head < heads; ++head) {
    float* gradient = dy + offset(head, width);
    rotate_half(rope_.cosines(position), rope_.sines(position), width, true, gradient);
    if (weight.empty()) continue;
    const float* x = from + offset(head, width);
    const float inverse = rms_norm(x, weight.data(), eps_, width, normed);
    rms_norm_backward(x, weight.data(), inverse, gradient, width, false, gradient);
  }
}

void Transformer::attention_backward(const Batch& batch, int layer, const BlockActivations& activations,
                                     const float* dout, float* dq, float* dk, float* dv) {
  const ArenaScope scope(scratch_);
  const BlockWeights& block = weights_.blocks[static_cast<size_t>(layer)];
  const int width = spec_.head_dim;
  const int q_width = spec_.heads * width;
  const int kv_width = spec_.kv_heads * width;
  float* q = scratch_.take(floats(batch.rows, q_width));
  float* k = scratch_.take(floats(batch.rows, kv_width));
  for_rows(gemm_.pool(), batch.rows, 2 * q_width, [&](int row) {
    const int position = batch.positions[static_cast<size_t>(row)];
    rotate_heads(activations.q + offset(row, q_width), block.q_norm, spec_.heads, position, q + offset(row, q_width));
    rotate_heads(activations.k + offset(row, kv_width), block.k_norm, spec_.kv_heads, position,
                 k + offset(row, kv_width));
  });
  int longest = 0;
  for (const SequenceRows& sequence : batch.sequences) longest = std::max(longest, sequence.length());
  for (Floats& scratch : thread_scratch_) scratch.reserve(attention_gradient_scratch(width, longest));
  const auto run = [&](int task, int thread) {
    const SequenceRows& sequence = batch.sequences[static_cast<size_t>(task / spec_.kv_heads)];
    const int kv_head = task % spec_.kv_heads;
    const ptrdiff_t q_at = offset(sequence.begin, q_width) + offset(kv_head * group_, width);
    const ptrdiff_t kv_at = offset(sequence.begin, kv_width) + offset(kv_head, width);
    AttentionGradient args;
    args.length = sequence.end - sequence.begin;
    args.head_dim = width;
    args.query_heads = group_;
    args.scale = attention_scale_;
    args.q = q + q_at;
    args.out = activations.attention + q_at;
    args.dout = dout + q_at;
    args.q_stride = q_width;
    args.k = k + kv_at;
    args.v = activations.v + kv_at;
    args.kv_stride = kv_width;
    args.logsumexp = activations.logsumexp + offset(sequence.begin, spec_.heads) + kv_head * group_;
    args.logsumexp_stride = spec_.heads;
    args.dq = dq + q_at;
    args.dk = dk + kv_at;
    args.dv = dv + kv_at;
    args.scratch = thread_scratch_[static_cast<size_t>(thread)].data();
    attend_backward(args);
  };
  gemm_.pool().run(static_cast<int>(batch.sequences.size()) * spec_.kv_heads, run);
  for_rows(gemm_.pool(), batch.rows, 2 * q_width, [&](int row) {
    const int position = batch.positions[static_cast<size_t>(row)];
    rotate_heads_backward(activations.q + offset(row, q_width), block.q_norm, spec_.heads, position,
                          dq + offset(row, q_width));
    rotate_heads_backward(activations.k + offset(row, kv_width), block.k_norm, spec_.kv_heads, position,
                          dk + offset(row, kv_width));
  });
}

void Transformer::backward(const Batch& batch, int layer, BlockActivations& activations, bool to_input, float* dx) {
  mlp_backward(batch, layer, activations, dx);
  const ArenaScope scope(scratch_);
  const BlockWeights& block = weights_.blocks[static_cast<size_t>(layer)];
  const int rows = batch.rows;
  const int hidden = spec_.hidden_size;
  const int q_width = spec_.heads * spec_.head_dim;
  const int kv_width = spec_.kv_heads * spec_.head_dim;
  auto& lora = activations.hidden;
  float* dattention = scratch_.take(floats(rows, q_width));
  {
    const ArenaScope inner(scratch_);
    const LinearUse use{&block.o, TargetModule::kO, layer, dx, &lora[3]};
    linear_.backward({activations.attention, rows, q_width, batch.runs}, {&use, 1}, dattention);
  }
  float* dq = scratch_.take(floats(rows, q_width));
  float* dk = scratch_.take(floats(rows, kv_width));
  float* dv = scratch_.take(floats(rows, kv_width));
  attention_backward(batch, layer, activations, dattention, dq, dk, dv);
  float* normed = scratch_.take(floats(rows, hidden));
  float* inverse = scratch_.take(static_cast<size_t>(rows));
  normalize(activations.input, block.attention_norm, rows, normed, inverse);
  float* dnormed = to_input ? scratch_.take(floats(rows, hidden)) : nullptr;
  const LinearUse uses[] = {{&block.q, TargetModule::kQ, layer, dq, &lora[0]},
                            {&block.k, TargetModule::kK, layer, dk, &lora[1]},
                            {&block.v, TargetModule::kV, layer, dv, &lora[2]}};
  linear_.backward({normed, rows, hidden, batch.runs}, uses, dnormed);
  if (to_input) normalize_backward(activations.input, block.attention_norm, inverse, dnormed, rows, true, dx);
}

}  // namespace tuft::engine::native
