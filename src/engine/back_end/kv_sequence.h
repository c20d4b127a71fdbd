// KvSequence: the blocks of a KV cache that one open sequence holds.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "base/result.h"
#include "engine/back_end/checks.h"
#include "engine/sample/block_pool.h"

namespace tuft::engine {

// Returns the number of blocks for BlockPool: at least one, or 0 (no limit) if bytes_max is 0.
int64_t kv_blocks_max(int64_t bytes_max, int64_t block_bytes);
KvUsage kv_usage_of(const BlockPool& pool, int64_t block_bytes);

// The destructor returns the blocks to the cache, which must outlive this and has:
//   BlockPool& pool();
//   struct View;                                            locates the memory of the blocks for a step
//   void map(const BlockPool::Sequence&, View&);            allocates missing memory and fills the view
//   void copy_block(BlockId from, BlockId to);
// Members throw what map() and copy_block() throw.
template <typename Cache>
class KvSequence {
 public:
  KvSequence(Cache& cache, BlockPool::Owner owner) : cache_(&cache) { held_.owner = owner; }
  ~KvSequence() {
    if (cache_ != nullptr) cache_->pool().close(held_);
  }
  KvSequence(KvSequence&& other) noexcept { swap(other); }
  KvSequence& operator=(KvSequence&& other) noexcept {
    swap(other);
    return *this;
  }

  const BlockPool::Sequence& held() const { return held_; }
  int length() const { return held_.length; }  // in tokens
  // Covers length() positions and those of the last extend(). Valid until the next change.
  const typename Cache::View& view() const { return view_; }

  // See BlockPool.
  int adopt(std::span<const int32_t> tokens) {
    const int adopted = cache_->pool().adopt(held_, tokens);
    if (adopted > 0) map();
    return adopted;
  }
  bool extend(int count) {
    const size_t before = held_.blocks.size();
    if (!cache_->pool().extend(held_, count)) return false;
    if (held_.blocks.size() > before || !mapped_) map();
    return true;
  }
  void commit(std::span<const int32_t> tokens) {
    const int positions = cache_->pool().positions();
    const int full = held_.length / positions;
    cache_->pool().commit(held_, tokens);
    if (held_.length / positions > full) map();
  }
  // Returns kResourceExhausted if no block is left.
  Result<KvSequence> fork() const {
    auto fork = cache_->pool().fork(held_);
    if (!fork) return no_block_left();
    KvSequence copy(*cache_, BlockPool::Owner());
    copy.held_ = std::move(fork->sequence);
    copy.map();
    if (fork->copy) cache_->copy_block(fork->copy->first, fork->copy->second);
    return copy;
  }

 private:
  void swap(KvSequence& other) noexcept {
    std::swap(cache_, other.cache_);
    std::swap(held_, other.held_);
    std::swap(view_, other.view_);
    std::swap(mapped_, other.mapped_);
  }
  void map() {
    mapped_ = false;
    cache_->map(held_, view_);
    mapped_ = true;
  }

  Cache* cache_ = nullptr;
  BlockPool::Sequence held_;
  typename Cache::View view_;
  bool mapped_ = true;  // false: memory ran out, and the view lacks blocks
};

}  // namespace tuft::engine
