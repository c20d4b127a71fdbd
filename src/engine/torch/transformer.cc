#include "engine/torch/transformer.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#if TUFT_TORCH_VERSION >= 20400
#include <ATen/ops/rms_norm.h>
#endif

#include "engine/torch/frozen_linear.h"

namespace tuft::engine::torch {

int64_t Transformer::logits_rows_max() const {
  const int64_t bytes = placement_.is_cuda() ? kLogitsBytesCuda : kLogitsBytes;
  return std::max<int64_t>(1, bytes / (int64_t{4} * spec_.vocab_size));
}

int64_t Transformer::activation_bytes() const {
  const int64_t active = placement_.activations == at::kFloat ? 4 : 2;
  const int64_t width = spec_.head_dim;
  const int64_t rotated = (spec_.heads + spec_.kv_heads) * width * (active + (spec_.qk_norm ? 4 : 0));
  // q, k and v before and after the rotation, and what is attended; gate and up, silu(gate), and their product.
  return spec_.hidden_size * (2 * 4 + 2 * active) + (2 * spec_.heads + 2 * spec_.kv_heads) * width * active + rotated +
         int64_t{4} * spec_.intermediate_size * active;
}

void Transformer::extend_rope(int count) {
  if (count <= rope_count_) return;
  count = std::max(count, std::min(2 * rope_count_, spec_.max_position));
  rope_.extend(count);
  const int64_t half = spec_.head_dim / 2;
  at::Tensor cosines = at::empty({count, half}, placement_.f32_host());
  at::Tensor sines = at::empty({count, 2, half}, placement_.f32_host());
  for (int position = 0; position < count; ++position) {
    std::copy_n(rope_.cosines(position), half, cosines.data_ptr<float>() + position * half);
    std::copy_n(rope_.sines(position), half, sines.data_ptr<float>() + (2 * position + 1) * half);
  }
  sines.select(1, 0).copy_(sines.select(1, 1).neg());
  rope_cosines_ = cosines.to(placement_.device);
  rope_sines_ = sines.to(placement_.device);
  rope_count_ = count;
}

Batch Transformer::make_batch(std::span<const Rows> rows) {
  std::vector<Adapter*> owners;
  std::vector<int64_t> tokens;
  std::vector<int64_t> positions;
  Spans spans;
  int length = 0;
  for (const Rows& sequence : rows) {
    const auto count = static_cast<int>(sequence.tokens.size());
    tokens.insert(tokens.end(), sequence.tokens.begin(), sequence.tokens.end());
    owners.insert(owners.end(), sequence.tokens.size(), sequence.adapter);
    for (int i = 0; i < count; ++i) positions.push_back(sequence.position + i);
    spans.append(count, sequence.position + count);
    length = std::max(length, sequence.position + count);
  }
  spans.upload(placement_);
  extend_rope(length);
  Batch batch =
      make_batch(to_device(tokens, placement_), to_device(positions, placement_), LoraPlan(owners, placement_));
  batch.spans = std::move(spans);
  return batch;
}

Batch Transformer::make_batch(const at::Tensor& tokens, const at::Tensor& positions, LoraPlan lora) const {
  return {.tokens = tokens,
          .cosines = rope_cosines_.index_select(0, positions).unsqueeze(1).unsqueeze(1),
          .sines = rope_sines_.index_select(0, positions).unsqueeze(1),
          .lora = std::move(lora),
          .spans = {},
          .cache = nullptr,
          .write_slots = {},
          .read_slots = {},
          .known = {}};
}

at::Tensor Transformer::embed(const Batch& batch) const {
  return weights_.embedding.index_select(0, batch.tokens).to(at::kFloat);
}

at::Tensor Transformer::norm(const at::Tensor& x, const at::Tensor& weight) const {
#if TUFT_TORCH_VERSION >= 20400
  if (weight.dim() == 1) return at::rms_norm(x, weight.sizes(), weight, spec_.rms_norm_eps);
  return at::rms_norm(x, {x.size(-1)}, {}, spec_.rms_norm_eps) * weight;
#else
  return x * at::rsqrt(x.square().mean({-1}, true) + spec_.rms_norm_eps) * weight;
#endif
}

at::Tensor Transformer::rotate(const at::Tensor& x, const at::Tensor& weight, const Batch& batch) const {
  at::Tensor wide = x.to(at::kFloat);
  if (weight.defined()) wide = norm(wide, weight);
  // Number i of the first half and number i of the second half are the coordinates of a point.
  const at::Tensor points = wide.view({x.size(0), x.size(1), 2, spec_.head_dim / 2});
  return at::addcmul(points * batch.cosines, points.flip({2}), batch.sines).to(placement_.activations).flatten(2);
}

at::Tensor Transformer::attend(int layer, const at::Tensor& qkv, const Batch& batch) const {
  const int64_t width = spec_.head_dim;
  const auto parts = qkv.split_with_sizes({(spec_.heads + spec_.kv_heads) * width, spec_.kv_heads * width}, 1);
  const auto heads = [&](const at::Tensor& x) { return x.view({x.size(0), x.size(1) / width, width}); };
  const auto qk = rotate(heads(parts[0]), weights_.blocks[static_cast<size_t>(layer)].qk_norm, batch)
                      .split_with_sizes({spec_.heads, spec_.kv_heads}, 1);
  const at::Tensor& q = qk[0];
  const at::Tensor& k = qk[1];
  const at::Tensor v = heads(parts[1]);
  if (batch.cache == nullptr) return attention_(q, k, v, batch.spans);
  batch.cache->write(layer, batch.write_slots, k, v);
  if (!batch.known.defined() && !batch.spans.with_past()) return attention_(q, k, v, batch.spans);
  const KvCache::KeysValues past = batch.cache->read(layer, batch.read_slots);
  return batch.known.defined() ? attention_.masked(q, past.k, past.v, batch.known)
                               : attention_(q, past.k, past.v, batch.spans);
}

at::Tensor Transformer::block(int layer, const at::Tensor& x, const Batch& batch) const {
  const BlockWeights& block = weights_.blocks[static_cast<size_t>(layer)];
  const auto linear = [&](const at::Tensor& input, const Linear& weights, LoraSite site) {
    return FrozenLinear{&weights, &batch.lora, site, layer}(input);
  };
  const at::Tensor n = norm(x, block.attention_norm).to(placement_.activations);
  const at::Tensor attended = attend(layer, linear(n, block.qkv, LoraSite::kQkv), batch);
  const at::Tensor middle = x + linear(attended, block.o, LoraSite::kO);
  const at::Tensor m = norm(middle, block.mlp_norm).to(placement_.activations);
  const auto gate_up = linear(m, block.gate_up, LoraSite::kGateUp).chunk(2, 1);
  return middle + linear(at::silu(gate_up[0]) * gate_up[1], block.down, LoraSite::kDown);
}

at::Tensor Transformer::final_norm(const at::Tensor& x) const {
  return norm(x, weights_.final_norm).to(placement_.activations);
}

at::Tensor Transformer::logits(const at::Tensor& normed) const {
#if TUFT_TORCH_VERSION >= 20800
  // Without rounding to bf16 in between, which could change a logit of 20 by up to 0.06.
  if (placement_.is_cuda() && placement_.activations == at::kBFloat16 && weights_.head.scalar_type() == at::kBFloat16) {
    return at::mm(normed, weights_.head.t(), at::kFloat);
  }
#endif
  if (placement_.is_cuda()) return at::linear(normed, weights_.head.to(placement_.activations)).to(at::kFloat);
  return at::linear(normed.to(at::kFloat), weights_.head.to(at::kFloat));
}

at::Tensor Transformer::logits_backward(const at::Tensor& dlogits) const {
  return at::mm(dlogits, weights_.head.to(dlogits.scalar_type()));
}

}  // namespace tuft::engine::torch
