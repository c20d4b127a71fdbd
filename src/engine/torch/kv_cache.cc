#include "engine/torch/kv_cache.h"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

namespace tuft::engine::torch {

int64_t KvCache::bytes_per_token(const ModelSpec& spec, const Placement& placement) {
  const int64_t width = placement.activations == at::kFloat ? 4 : 2;
  return 2 * width * spec.layers * spec.kv_heads * spec.head_dim;
}

KvCache::KvCache(const ModelSpec& spec, const Placement& placement, int64_t bytes_max)
    : placement_(placement),
      shape_{spec.kv_heads, spec.head_dim},
      block_bytes_(kKvBlock * bytes_per_token(spec, placement)),
      layers_(spec.layers),
      pool_(kKvBlock, kv_blocks_max(bytes_max, block_bytes_)),
      keys_(static_cast<size_t>(spec.layers)),
      values_(static_cast<size_t>(spec.layers)) {
  if (pool_.limit() > 0) reserve(pool_.limit());
}

void KvCache::reserve(int64_t blocks) {
  const std::vector<int64_t> shape = {(blocks + 1) * kKvBlock, shape_[0], shape_[1]};
  for (auto* layers : {&keys_, &values_}) {
    for (at::Tensor& memory : *layers) {
      at::Tensor grown = at::empty(shape, placement_.active());
      const int64_t used = capacity_ * kKvBlock;
      if (used > 0) grown.narrow(0, 0, used).copy_(memory.narrow(0, 0, used));
      grown.narrow(0, blocks * kKvBlock, kKvBlock).zero_();
      memory = std::move(grown);
    }
  }
  capacity_ = blocks;
}

void KvCache::allocate() {
  if (pool_.size() > capacity_) reserve(std::max(pool_.size(), 2 * capacity_));
}

void KvCache::copy_block(BlockId from, BlockId to) {
  for (auto* layers : {&keys_, &values_}) {
    for (at::Tensor& memory : *layers) {
      memory.narrow(0, int64_t{to} * kKvBlock, kKvBlock).copy_(memory.narrow(0, int64_t{from} * kKvBlock, kKvBlock));
    }
  }
}

void KvCache::write(int layer, const at::Tensor& slots, const at::Tensor& k, const at::Tensor& v) {
  keys_[static_cast<size_t>(layer)].index_copy_(0, slots, k);
  values_[static_cast<size_t>(layer)].index_copy_(0, slots, v);
}

KvCache::KeysValues KvCache::read(int layer, const at::Tensor& slots) const {
  return {keys_[static_cast<size_t>(layer)].index_select(0, slots),
          values_[static_cast<size_t>(layer)].index_select(0, slots)};
}

}  // namespace tuft::engine::torch
