// KvCache: the memory of the KV cache on the device, for the blocks of a BlockPool. Internal. Functions may throw
// libtorch's exceptions.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/back_end/kv_sequence.h"
#include "engine/torch/device.h"

namespace tuft::engine::torch {

inline constexpr int kKvBlock = 64;  // positions

class KvCache {
 public:
  // If bytes_max is 0, there is no limit, and memory grows as needed; else all of it is allocated now.
  KvCache(const ModelSpec& spec, const Placement& placement, int64_t bytes_max);
  static int64_t bytes_per_token(const ModelSpec& spec, const Placement& placement);

  BlockPool& pool() { return pool_; }
  int64_t block_bytes() const { return block_bytes_; }

  // For KvSequence. A step reads whole layers by slot, so the view is empty.
  struct View {};
  void map(const BlockPool::Sequence&, View&) { allocate(); }
  void copy_block(BlockId from, BlockId to);

  // Returns a block that the pool does not have, for rows that pad a batch; only they read it. Its first position stays
  // zero.
  int64_t spare_block() const { return capacity_; }
  // Returns the slot of a sequence's position: its row in the memory of a layer.
  static int64_t slot(const BlockPool::Sequence& sequence, int position) {
    return int64_t{sequence.blocks[static_cast<size_t>(position / kKvBlock)]} * kKvBlock + position % kKvBlock;
  }

  // k and v are [rows, kv_heads, head_dim], slots [rows].
  void write(int layer, const at::Tensor& slots, const at::Tensor& k, const at::Tensor& v);
  struct KeysValues {
    at::Tensor k;
    at::Tensor v;
  };
  KeysValues read(int layer, const at::Tensor& slots) const;

 private:
  void allocate();  // for every block that the pool has given out
  void reserve(int64_t blocks);

  Placement placement_;
  std::vector<int64_t> shape_;  // of one position
  int64_t block_bytes_ = 0;
  int layers_ = 0;
  BlockPool pool_;
  int64_t capacity_ = 0;          // blocks
  std::vector<at::Tensor> keys_;  // of each layer: [(capacity + 1) * kKvBlock, kv_heads, head_dim]
  std::vector<at::Tensor> values_;
};

using KvSequence = engine::KvSequence<KvCache>;

}  // namespace tuft::engine::torch
