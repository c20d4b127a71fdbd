#include "engine/native/kv_cache.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace tuft::engine::native {
namespace {

int64_t blocks_of(int64_t bytes_max, int64_t block_bytes) {
  return bytes_max == 0 ? 0 : std::max<int64_t>(1, bytes_max / block_bytes);
}

}  // namespace

KvCache::KvCache(ptrdiff_t block_floats, int64_t bytes_max)
    : block_floats_(block_floats), pool_(kKvBlock, blocks_of(bytes_max, block_bytes())) {}

KvUsage KvCache::usage() const {
  return {.used = pool_.used() * block_bytes(),
          .cached = pool_.cached() * block_bytes(),
          .limit = pool_.limit() * block_bytes(),
          .block = block_bytes(),
          .positions = kKvBlock,
          .evicted = pool_.evicted(),
          .empty = pool_.empty() * block_bytes() / kKvBlock};
}

void KvCache::allocate() {
  while (memory_.size() < static_cast<size_t>(pool_.size())) {
    memory_.emplace_back(static_cast<size_t>(block_floats_));
  }
}

void KvCache::Sequence::swap(Sequence& other) noexcept {
  std::swap(cache_, other.cache_);
  std::swap(held_, other.held_);
  pointers_.swap(other.pointers_);
}

void KvCache::Sequence::point() {
  cache_->allocate();
  pointers_.resize(held_.blocks.size());
  std::transform(held_.blocks.begin(), held_.blocks.end(), pointers_.begin(),
                 [this](BlockId id) { return cache_->memory_[static_cast<size_t>(id)].data(); });
}

int KvCache::Sequence::adopt(std::span<const int32_t> tokens) {
  const int adopted = cache_->pool_.adopt(held_, tokens);
  if (adopted > 0) point();
  return adopted;
}

bool KvCache::Sequence::extend(int count) {
  const size_t before = held_.blocks.size();
  if (!cache_->pool_.extend(held_, count)) return false;
  if (held_.blocks.size() > before) point();
  return true;
}

void KvCache::Sequence::commit(std::span<const int32_t> tokens) {
  const int full = held_.length / kKvBlock;
  cache_->pool_.commit(held_, tokens);
  if (held_.length / kKvBlock > full) point();
}

Result<KvCache::Sequence> KvCache::Sequence::fork() const {
  auto fork = cache_->pool_.fork(held_);
  if (!fork) {
    return Error{ErrorCode::kResourceExhausted, "the KV cache has no block left for another sequence", "kv_cache_full"};
  }
  Sequence copy(*cache_, std::move(fork->sequence));
  if (fork->copy) {
    const auto [from, to] = *fork->copy;
    std::copy_n(cache_->memory_[static_cast<size_t>(from)].data(), cache_->block_floats_,
                cache_->memory_[static_cast<size_t>(to)].data());
  }
  return copy;
}

}  // namespace tuft::engine::native
