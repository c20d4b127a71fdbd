// Scratch memory for one pass or step. It is taken in pieces, returned all at once, and kept for the next time: as much
// as was ever taken at a time, and no more, whatever the sizes of the pieces were.
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>
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
      add_chunk(wanted);
      used_ = 0;
    }
    float* memory = chunks_[chunk_].data() + used_;
    used_ += wanted;
    taken_ += wanted;
    most_ = std::max(most_, taken_);
    return memory;
  }

  struct Mark {
    size_t chunk = 0;
    size_t used = 0;
    size_t taken = 0;
  };
  Mark mark() const { return {chunk_, used_, taken_}; }
  void release_to(Mark mark) {
    chunk_ = mark.chunk;
    used_ = mark.used;
    taken_ = mark.taken;
  }
  // Takes everything back. Several chunks are freed, so that one takes their place: pieces that are a little larger
  // each time fit into none of those of the times before, and all of these would stay.
  void reset() {
    release_to({});
    if (chunks_.size() > 1) chunks_.clear();
  }
  // Gives all memory back. The next piece takes `most` floats at once, or its own size if that is more, so that the
  // pieces of a known sum lie in one chunk.
  void renew(size_t most) {
    chunks_.clear();
    release_to({});
    most_ = most;
  }
  // Returns as much as was taken at a time since renew(), in floats, or what was expected there.
  size_t most() const { return most_; }
  // Returns the size of all memory that it holds, in floats.
  size_t size() const {
    size_t sum = 0;
    for (const Floats& chunk : chunks_) sum += chunk.size();
    return sum;
  }

 private:
  void add_chunk(size_t wanted) {
    constexpr size_t kChunk = size_t{4} << 20;
    const size_t least = std::max(wanted, kChunk);
    if (chunks_.empty() && most_ > least) {
      try {
        chunks_.emplace_back(most_);
        return;
      } catch (const std::bad_alloc&) {
        // There may be memory for the pieces alone.
      }
    }
    chunks_.emplace_back(least);
  }

  std::vector<Floats> chunks_;
  size_t chunk_ = 0;
  size_t used_ = 0;   // of that chunk
  size_t taken_ = 0;  // of all chunks, without what was left at their ends
  size_t most_ = 0;   // that was taken at a time, or is expected
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
