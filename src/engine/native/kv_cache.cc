#include "engine/native/kv_cache.h"

#include <algorithm>

namespace tuft::engine::native {

void KvCache::map(const BlockPool::Sequence& sequence, View& view) {
  while (memory_.size() < static_cast<size_t>(pool_.size())) {
    memory_.emplace_back(static_cast<size_t>(block_floats_));
  }
  view.resize(sequence.blocks.size());
  std::transform(sequence.blocks.begin(), sequence.blocks.end(), view.begin(),
                 [this](BlockId id) { return memory_[static_cast<size_t>(id)].data(); });
}

void KvCache::copy_block(BlockId from, BlockId to) {
  std::copy_n(memory_[static_cast<size_t>(from)].data(), block_floats_, memory_[static_cast<size_t>(to)].data());
}

}  // namespace tuft::engine::native
