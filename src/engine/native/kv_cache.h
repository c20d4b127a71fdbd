// The memory of the KV cache: blocks of kKvBlock positions, each with the keys and values of all layers and heads in
// f32. Confined to the engine thread.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/back_end/kv_sequence.h"
#include "engine/native/buffer.h"
#include "engine/native/ops/attention.h"

namespace tuft::engine::native {

class KvCache {
 public:
  // `block_floats` is the size of one block over all layers and heads. If `bytes_max` is 0, there is no limit, and a
  // block is kept only while a sequence holds it; else the cache has at least one block.
  KvCache(ptrdiff_t block_floats, int64_t bytes_max)
      : block_floats_(block_floats), pool_(kKvBlock, kv_blocks_max(bytes_max, block_bytes())) {}

  BlockPool& pool() { return pool_; }
  int64_t block_bytes() const { return block_floats_ * static_cast<int64_t>(sizeof(float)); }

  // These serve KvSequence. Throw std::bad_alloc.
  using View = std::vector<const float*>;  // the memory of each block
  void map(const BlockPool::Sequence& sequence, View& view);
  void copy_block(BlockId from, BlockId to);

 private:
  const ptrdiff_t block_floats_;
  BlockPool pool_;
  std::vector<Floats> memory_;  // by BlockId
};

using KvSequence = engine::KvSequence<KvCache>;

}  // namespace tuft::engine::native
