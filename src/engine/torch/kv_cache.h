// Keys and values of open sequences on the device: the memory behind the blocks of a BlockPool. Internal. Functions
// may throw what libtorch throws.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/sample/block_pool.h"
#include "engine/torch/device.h"

namespace tuft::engine::torch {

inline constexpr int kKvBlock = 64;  // positions

class KvCache {
 public:
  // bytes_max 0: no limit, memory grows as it is needed; else all of it is taken now.
  KvCache(const ModelSpec& spec, const Place& place, int64_t bytes_max);
  static int64_t bytes_per_token(const ModelSpec& spec, const Place& place);

  BlockPool& pool() { return pool_; }
  KvUsage usage() const;
  // Memory for every block that the pool has given out.
  void allocate();
  void copy_block(BlockId from, BlockId to);
  // One more than the pool has, for rows that fill up a batch: nobody reads it but they. Its first position stays zero.
  int64_t spare_block() const { return capacity_; }
  // The place of a sequence's position in the memory of a layer.
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
  void reserve(int64_t blocks);

  Place place_;
  std::vector<int64_t> shape_;  // of one position
  int64_t block_bytes_ = 0;
  int layers_ = 0;
  BlockPool pool_;
  int64_t capacity_ = 0;          // blocks
  std::vector<at::Tensor> keys_;  // of each layer: [(capacity + 1) * kKvBlock, kv_heads, head_dim]
  std::vector<at::Tensor> values_;
};

}  // namespace tuft::engine::torch
