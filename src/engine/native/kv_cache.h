// Keys and values of open sequences: the memory behind the blocks of a BlockPool, of kKvBlock positions that hold all
// layers and heads. Confined to the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/native/buffer.h"
#include "engine/native/ops/attention.h"
#include "engine/sample/block_pool.h"

namespace tuft::engine::native {

class KvCache {
 public:
  // bytes_max 0: no limit, and nothing is kept that no sequence holds; else there is at least one block.
  // block_floats: of one block over all layers and heads.
  KvCache(ptrdiff_t block_floats, int64_t bytes_max);

  // The cache of one sequence: nothing at first. Gives its blocks back when it goes.
  class Sequence {
   public:
    Sequence(KvCache& cache, BlockPool::Owner owner) : cache_(&cache) { held_.owner = owner; }
    ~Sequence() {
      if (cache_ != nullptr) cache_->pool_.close(held_);
    }
    Sequence(Sequence&& other) noexcept { swap(other); }
    Sequence& operator=(Sequence&& other) noexcept {
      swap(other);
      return *this;
    }

    int length() const { return held_.length; }
    // Of length() positions and those of the last extend(); valid until the next change.
    const float* const* blocks() const { return pointers_.data(); }
    int adopt(std::span<const int32_t> tokens);
    // Room for `count` more positions; false where there are too few blocks. Throws std::bad_alloc.
    bool extend(int count);
    // They are written, and hold these tokens.
    void commit(std::span<const int32_t> tokens);
    // Throws std::bad_alloc.
    Result<Sequence> fork() const;

   private:
    Sequence(KvCache& cache, BlockPool::Sequence held) : cache_(&cache), held_(std::move(held)) { point(); }
    void swap(Sequence& other) noexcept;
    void point();

    KvCache* cache_ = nullptr;
    BlockPool::Sequence held_;
    std::vector<const float*> pointers_;
  };

  void forget(uint64_t version) { pool_.forget(version); }
  KvUsage usage() const;
  std::vector<KvBlockTime> take_times() { return pool_.take_times(); }

 private:
  int64_t block_bytes() const { return block_floats_ * static_cast<int64_t>(sizeof(float)); }
  void allocate();

  const ptrdiff_t block_floats_;
  BlockPool pool_;
  std::vector<Floats> memory_;  // by BlockId; empty where none was needed yet
};

}  // namespace tuft::engine::native
