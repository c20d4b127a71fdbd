#include "engine/native/transformer.h"

#include <algorithm>
#include <cmath>

#include "engine/native/buffer.h"
#include "engine/native/for_rows.h"
#include "engine/native/ops/rows.h"

namespace tuft::engine::native {
Transformer::Transformer(const ModelSpec& spec, const Weights& weights, Gemm& gemm, Arena& scratch)
    : spec_(spec),
      weights_(weights),
      gemm_(gemm),
      scratch_(scratch),
      linear_(gemm, scratch),
      rope_(spec),
      group_(spec.heads / spec.kv_heads),
      eps_(static_cast<float>(spec.rms_norm_eps)),
      attention_scale_(1.0F / std::sqrt(static_cast<float>(spec.head_dim))),
      thread_scratch_(static_cast<size_t>(gemm.pool().threads())) {}

size_t Transformer::activation_floats(const ModelSpec& spec) {
  return static_cast<size_t>(2 * spec.hidden_size + 2 * spec.intermediate_size +
                             (2 * spec.heads + 2 * spec.kv_heads) * spec.head_dim + spec.heads);
}

BlockActivations Transformer::allocate(Arena& arena, int rows, bool with_logsumexp) const {
  const int q = spec_.heads * spec_.head_dim;
  const int kv = spec_.kv_heads * spec_.head_dim;
  BlockActivations activations;
  activations.q = arena.take(floats(rows, q));
  activations.k = arena.take(floats(rows, kv));
  activations.v = arena.take(floats(rows, kv));
  activations.attention = arena.take(floats(rows, q));
  if (with_logsumexp) activations.logsumexp = arena.take(floats(rows, spec_.heads));
  activations.middle = arena.take(floats(rows, spec_.hidden_size));
  activations.gate = arena.take(floats(rows, spec_.intermediate_size));
  activations.up = arena.take(floats(rows, spec_.intermediate_size));
  return activations;
}

size_t Transformer::thread_floats() const {
  size_t sum = 0;
  for (const Floats& scratch : thread_scratch_) sum += scratch.size();
  return sum;
}

void Transformer::give_thread_memory_back() {
  for (Floats& scratch : thread_scratch_) scratch = {};
}

void Transformer::embed(const Batch& batch, float* x) {
  rope_.extend(*std::max_element(batch.positions.begin(), batch.positions.end()) + 1);
  for_rows(gemm_.pool(), batch.rows, spec_.hidden_size, [&](int row) {
    weights_.embed(batch.tokens[static_cast<size_t>(row)], spec_.hidden_size, x + offset(row, spec_.hidden_size));
  });
}

void Transformer::normalize(const float* x, const Floats& weight, int rows, float* y, float* inverse) {
  const int width = spec_.hidden_size;
  for_rows(gemm_.pool(), rows, width, [&](int row) {
    const float factor = rms_norm(x + offset(row, width), weight.data(), eps_, width, y + offset(row, width));
    if (inverse != nullptr) inverse[row] = factor;
  });
}

void Transformer::normalize_backward(const float* x, const Floats& weight, const float* inverse, const float* dy,
                                     int rows, bool add, float* dx) {
  const int width = spec_.hidden_size;
  for_rows(gemm_.pool(), rows, 2 * width, [&](int row) {
    const ptrdiff_t at = offset(row, width);
    rms_norm_backward(x + at, weight.data(), inverse[row], dy + at, width, add, dx + at);
  });
}

void Transformer::forward(const Batch& batch, int layer, int kv_layer, BlockActivations& activations, float* output,
                          Arena& keep) {
  const BlockWeights& block = weights_.blocks[static_cast<size_t>(layer)];
  const int rows = batch.rows;
  const int hidden = spec_.hidden_size;
  const int inner = spec_.intermediate_size;
  auto& lora = activations.hidden;
  const auto add_row = [&](const float* x, float* y) {
    for_rows(gemm_.pool(), rows, hidden,
             [&](int row) { add_rows(x + offset(row, hidden), hidden, y + offset(row, hidden)); });
  };
  {
    const ArenaScope scope(scratch_);
    float* normed = scratch_.take(floats(rows, hidden));
    normalize(activations.input, block.attention_norm, rows, normed, nullptr);
    const LinearUse uses[] = {{&block.q, TargetModule::kQ, layer, activations.q, &lora[0]},
                              {&block.k, TargetModule::kK, layer, activations.k, &lora[1]},
                              {&block.v, TargetModule::kV, layer, activations.v, &lora[2]}};
    linear_.forward({normed, rows, hidden, batch.runs}, uses, keep);
  }
  attention_forward(batch, layer, kv_layer, activations);
  {
    const ArenaScope scope(scratch_);
    const LinearUse use{&block.o, TargetModule::kO, layer, activations.middle, &lora[3]};
    linear_.forward({activations.attention, rows, block.o.in, batch.runs}, {&use, 1}, keep);
    add_row(activations.input, activations.middle);
  }
  const ArenaScope scope(scratch_);
  float* normed = scratch_.take(floats(rows, hidden));
  normalize(activations.middle, block.mlp_norm, rows, normed, nullptr);
  const LinearUse uses[] = {{&block.gate, TargetModule::kGate, layer, activations.gate, &lora[4]},
                            {&block.up, TargetModule::kUp, layer, activations.up, &lora[5]}};
  linear_.forward({normed, rows, hidden, batch.runs}, uses, keep);
  float* product = scratch_.take(floats(rows, inner));
  for_rows(gemm_.pool(), rows, 2 * inner, [&](int row) {
    const ptrdiff_t at = offset(row, inner);
    swiglu(activations.gate + at, activations.up + at, inner, product + at);
  });
  const LinearUse use{&block.down, TargetModule::kDown, layer, output, &lora[6]};
  linear_.forward({product, rows, inner, batch.runs}, {&use, 1}, keep);
  add_row(activations.middle, output);
}

void Transformer::rotate_heads(const float* from, const Floats& weight, int heads, int position, float* to) const {
  const int width = spec_.head_dim;
  for (int head = 0; head < heads; ++head) {
    const float* x = from + offset(head, width);
    float* y = to + offset(head, width);
    if (weight.empty()) {
      std::copy_n(x, width, y);
    } else {
      rms_norm(x, weight.data(), eps_, width, y);
    }
    rotate_half(rope_.cosines(position), rope_.sines(position), width, false, y);
  }
}

void Transformer::store_keys(const Batch& batch, const SequenceRows& sequence, int row, int layer, int kv_layer,
                             const BlockActivations& activations) const {
  const BlockWeights& block = weights_.blocks[static_cast<size_t>(layer)];
  const int width = spec_.head_dim;
  const int position = batch.positions[static_cast<size_t>(row)];
  // The view of the blocks is const, because only the positions of this batch may be written.
  auto* memory = const_cast<float*>(sequence.blocks[position / kKvBlock]);
  float key[kHeadDimMax];
  for (int head = 0; head < spec_.kv_heads; ++head) {
    const ptrdiff_t at = offset(row, spec_.kv_heads * width) + offset(head, width);
    rotate_heads(activations.k + at, block.k_norm, 1, position, key);
    float* keys = memory + kv_offset(kv_layer, head);
    store_kv(key, activations.v + at, width, position, keys, keys + static_cast<ptrdiff_t>(kKvBlock) * width);
  }
}

void Transformer::attend_tile(const Batch& batch, const SequenceRows& sequence, int kv_layer, int kv_head, int tile,
                              const float* q, const BlockActivations& activations, float* scratch) const {
  const int width = spec_.head_dim;
  const int first = tile * tile_rows_max();
  AttentionTile args;
  args.rows = std::min(tile_rows_max(), (sequence.end - sequence.begin) * group_ - first);
  for (int i = 0; i < args.rows; ++i) {
    const int row = sequence.begin + (first + i) / group_;
    const int head = kv_head * group_ + (first + i) % group_;
    const ptrdiff_t at = offset(row, spec_.heads * width) + offset(head, width);
    args.q[i] = q + at;
    args.length[i] = batch.positions[static_cast<size_t>(row)] + 1;
    args.out[i] = activations.attention + at;
    if (activations.logsumexp == nullptr) continue;
    args.logsumexp[i] = activations.logsumexp + offset(row, spec_.heads) + head;
  }
  args.kv.blocks = sequence.blocks;
  args.kv.k_offset = kv_offset(kv_layer, kv_head);
  args.kv.v_offset = args.kv.k_offset + static_cast<ptrdiff_t>(kKvBlock) * width;
  args.head_dim = width;
  args.scale = attention_scale_;
  args.scratch = scratch;
  attend(args);
}

void Transformer::attention_forward(const Batch& batch, int layer, int kv_layer, const BlockActivations& activations) {
  const ArenaScope scope(scratch_);
  const BlockWeights& block = weights_.blocks[static_cast<size_t>(layer)];
  const int q_width = spec_.heads * spec_.head_dim;
  float* q = scratch_.take(floats(batch.rows, q_width));
  std::vector<int> owner(static_cast<size_t>(batch.rows));
  struct Task {
    int sequence;
    int kv_head;
    int tile;
  };
  std::vector<Task> tasks;
  int longest = 0;
  for (int s = 0; s < static_cast<int>(batch.sequences.size()); ++s) {
    const SequenceRows& sequence = batch.sequences[static_cast<size_t>(s)];
    std::fill(owner.begin() + sequence.begin, owner.begin() + sequence.end, s);
    longest = std::max(longest, sequence.length());
    for (int tile = tile_count((sequence.end - sequence.begin) * group_) - 1; tile >= 0; --tile) {
      for (int head = 0; head < spec_.kv_heads; ++head) tasks.push_back({s, head, tile});
    }
  }
  for_rows(gemm_.pool(), batch.rows, 2 * q_width, [&](int row) {
    const SequenceRows& sequence = batch.sequences[static_cast<size_t>(owner[static_cast<size_t>(row)])];
    rotate_heads(activations.q + offset(row, q_width), block.q_norm, spec_.heads,
                 batch.positions[static_cast<size_t>(row)], q + offset(row, q_width));
    store_keys(batch, sequence, row, layer, kv_layer, activations);
  });
  for (Floats& scratch : thread_scratch_) scratch.reserve(attention_scratch(spec_.head_dim, longest));
  const auto run = [&](int index, int thread) {
    const Task& task = tasks[static_cast<size_t>(index)];
    attend_tile(batch, batch.sequences[static_cast<size_t>(task.sequence)], kv_layer, task.kv_head, task.tile, q,
                activations, thread_scratch_[static_cast<size_t>(thread)].data());
  };
  gemm_.pool().run(static_cast<int>(tasks.size()), run);
}

}  // namespace tuft::engine::native
