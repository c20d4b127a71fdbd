#include "engine/native/kv_cache.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"

namespace tuft::engine::native {

KvCache::Sequence::~Sequence() {
  if (cache_ != nullptr) cache_->reserved_ -= reserved_;
}

void KvCache::Sequence::swap(Sequence& other) noexcept {
  std::swap(cache_, other.cache_);
  std::swap(reserved_, other.reserved_);
  std::swap(tokens_max_, other.tokens_max_);
  std::swap(length_, other.length_);
  blocks_.swap(other.blocks_);
  pointers_.swap(other.pointers_);
}

const float* const* KvCache::Sequence::extend(int count) {
  const auto wanted = static_cast<size_t>((length_ + count + kKvBlock - 1) / kKvBlock);
  while (blocks_.size() < wanted) {
    auto block = std::make_shared<CountedFloats>(*cache_);
    pointers_.reserve(pointers_.size() + 1);
    blocks_.push_back(std::move(block));
    pointers_.push_back(blocks_.back()->floats.data());
  }
  return pointers_.data();
}

Result<KvCache::Sequence> KvCache::open(int tokens_max) {
  if (tokens_max < 1) return invalid_argument("a sequence needs room for at least one token", "tokens_max");
  const int64_t blocks = (static_cast<int64_t>(tokens_max) + kKvBlock - 1) / kKvBlock;
  const int64_t bytes = blocks * block_bytes();
  if (bytes_max_ > 0 && bytes > bytes_max_ - reserved_) {
    return Error{ErrorCode::kResourceExhausted,
                 "the KV cache is full: a sequence of " + std::to_string(tokens_max) + " tokens needs " +
                     std::to_string(bytes) + " bytes, " + std::to_string(bytes_max_ - reserved_) + " of " +
                     std::to_string(bytes_max_) + " are free. Ask for fewer tokens, wait, or raise the limit",
                 "kv_cache_full"};
  }
  reserved_ += bytes;
  Sequence sequence;
  sequence.cache_ = this;
  sequence.reserved_ = bytes;
  sequence.tokens_max_ = tokens_max;
  return sequence;
}

Result<KvCache::Sequence> KvCache::fork(const Sequence& source, int tokens_max) {
  if (tokens_max < source.length_) {
    return invalid_argument("a fork needs room for the tokens that it starts with", "tokens_max");
  }
  TUFT_ASSIGN(Sequence copy, open(std::max(tokens_max, 1)));
  const auto full = static_cast<size_t>(source.length_ / kKvBlock);
  for (size_t i = 0; i < full; ++i) copy.blocks_.push_back(source.blocks_[i]);
  if (source.length_ % kKvBlock != 0) {
    auto block = std::make_shared<CountedFloats>(*this);
    std::copy_n(source.blocks_[full]->floats.data(), block_floats_, block->floats.data());
    copy.blocks_.push_back(std::move(block));
  }
  for (const auto& block : copy.blocks_) copy.pointers_.push_back(block->floats.data());
  copy.length_ = source.length_;
  return copy;
}

}  // namespace tuft::engine::native
