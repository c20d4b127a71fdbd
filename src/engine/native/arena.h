// Scratch memory for one pass or step. It is taken in pieces, returned all at once, and kept for the next time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "engine/native/buffer.h"

namespace tuft::engine::native {

class Arena {
 public:
  // Returns `count` floats: 64-byte aligned, undefined, readable past their end as a Buffer is. Valid until
  // release_to() or reset(). Throws std::bad_alloc.
  float* take(size_t count) {
    constexpr size_t kAlign = 16;
    constexpr size_t kGap = kSlack / sizeof(float);
    const size_t wanted = (count + kAlign - 1) / kAlign * kAlign + kGap;
    while (chunk_ < chunks_.size() && used_ + wanted > chunks_[chunk_].size()) {
      ++chunk_;
      used_ = 0;
    }
    if (chunk_ == chunks_.size()) {
      constexpr size_t kChunk = size_t{4} << 20;
      chunks_.emplace_back(std::max(wanted, kChunk));
      used_ = 0;
    }
    float* memory = chunks_[chunk_].data() + used_;
    used_ += wanted;
    return memory;
  }

  struct Mark {
    size_t chunk = 0;
    size_t used = 0;
  };
  Mark mark() const { return {chunk_, used_}; }
  void release_to(Mark mark) {
    chunk_ = mark.chunk;
    used_ = mark.used;
  }
  void reset() { release_to({}); }

 private:
  std::vector<Floats> chunks_;
  size_t chunk_ = 0;
  size_t used_ = 0;
};

// Returns to the arena what was taken during the lifetime of this object.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~ArenaScope() { arena_.release_to(mark_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

}  // namespace tuft::engine::native
