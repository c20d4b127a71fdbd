// Keys and values of open sequences, in blocks of kKvBlock positions that hold all layers and heads. A full block is
// never written again, so forks share it; the last one is copied. Confined to the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/native/buffer.h"
#include "engine/native/ops/attention.h"

namespace tuft::engine::native {

class KvCache {
  struct CountedFloats {
    explicit CountedFloats(KvCache& owner) : cache(owner), floats(static_cast<size_t>(owner.block_floats_)) {
      ++cache.blocks_;
    }
    ~CountedFloats() { --cache.blocks_; }
    CountedFloats(const CountedFloats&) = delete;
    CountedFloats& operator=(const CountedFloats&) = delete;

    KvCache& cache;
    Floats floats;
  };

 public:
  // bytes_max 0: no limit. block_floats: of one block over all layers and heads.
  KvCache(ptrdiff_t block_floats, int64_t bytes_max) : block_floats_(block_floats), bytes_max_(bytes_max) {}

  // The cache of one sequence. What it may grow to is reserved when it is opened, so that no step fails for memory
  // that another sequence took.
  class Sequence {
   public:
    Sequence() = default;
    Sequence(Sequence&& other) noexcept { swap(other); }
    Sequence& operator=(Sequence&& other) noexcept {
      swap(other);
      return *this;
    }
    ~Sequence();

    int length() const { return length_; }
    int tokens_max() const { return tokens_max_; }
    // Makes room for `count` more positions, which are within tokens_max(). Throws std::bad_alloc.
    const float* const* extend(int count);
    void commit(int count) { length_ += count; }

   private:
    friend class KvCache;
    using Block = std::shared_ptr<CountedFloats>;
    void swap(Sequence& other) noexcept;

    KvCache* cache_ = nullptr;
    int64_t reserved_ = 0;
    int tokens_max_ = 0;
    int length_ = 0;
    std::vector<Block> blocks_;
    std::vector<const float*> pointers_;
  };

  // kResourceExhausted when the limit does not allow tokens_max more.
  Result<Sequence> open(int tokens_max);
  Result<Sequence> fork(const Sequence& source, int tokens_max);

  KvUsage usage() const {
    return {.used = blocks_ * block_bytes(), .reserved = reserved_, .limit = bytes_max_, .block = block_bytes()};
  }

 private:
  int64_t block_bytes() const { return block_floats_ * static_cast<int64_t>(sizeof(float)); }

  ptrdiff_t block_floats_;
  int64_t bytes_max_;
  int64_t reserved_ = 0;
  int64_t blocks_ = 0;
};

}  // namespace tuft::engine::native
