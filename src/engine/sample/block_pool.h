// BlockPool tracks the blocks of a KV cache: which sequence holds which blocks, which are free, and which are cached
// for prompts with the same beginning. It manages block numbers only; a back end owns the memory.
//
// A block has room for a fixed number of positions. A full block is never written again, so sequences share it. It is
// found by its contents: the version of the adapter, the scope, and every token up to its end. A full block that no
// sequence holds is cached until its memory is needed; the one released longest ago is evicted first. close() and
// forget() never throw. If another member throws std::bad_alloc, its sequences can still be closed. Confined to one
// thread.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/id.h"
#include "engine/decode_engine.h"

namespace tuft::engine {

using BlockId = int32_t;

// It has more than 25 methods: short questions about sequences and blocks, and the moves of a block between its lists.
class BlockPool {
 public:
  static constexpr int kWatchEvery = 64;
  static constexpr size_t kTimesMax = 256;

  // Sequences share blocks only within the same owner.
  struct Owner {
    uint64_t version = 0;  // of the adapter; 0: the base model
    uint64_t scope = 0;
    friend bool operator==(const Owner&, const Owner&) = default;
  };

  // The blocks of one sequence. close() releases them.
  struct Sequence {
    Owner owner;
    int length = 0;               // committed positions
    std::vector<BlockId> blocks;  // in order; may reach beyond `length`
    uint64_t content = 0;         // of the newest full block and all before it; 0: no full block
    std::vector<int32_t> tail;    // tokens of the block that is not full
  };

  // If blocks_max is 0, there is no limit, and a block is kept only while a sequence holds it. `clock` must outlive
  // this; it is read only for the watched blocks, one in kWatchEvery.
  BlockPool(int positions, int64_t blocks_max, const Clock& clock = system_clock())
      : positions_(positions), blocks_max_(blocks_max), clock_(clock) {}

  // Reuses full blocks that hold the first of `tokens`, which the caller is about to feed. Returns the number of tokens
  // in them: whole blocks, and fewer than tokens.size(). Returns 0 if the sequence does not end with a full block.
  int adopt(Sequence& sequence, std::span<const int32_t> tokens);
  // Makes room for `count` more positions. Returns false, without an effect, if too few blocks are left.
  bool extend(Sequence& sequence, int count);
  // Records that the next positions are written and hold these tokens. Replaces a new full block by an equal older one.
  void commit(Sequence& sequence, std::span<const int32_t> tokens);

  struct Fork {
    Sequence sequence;
    // The partly filled block, which the back end must copy: from, to.
    std::optional<std::pair<BlockId, BlockId>> copy;
  };
  // Returns nullopt if no block is left for the copy.
  std::optional<Fork> fork(const Sequence& source);
  void close(Sequence& sequence) noexcept;

  // Evicts the cached blocks of a version that no later sequence will have.
  void forget(uint64_t version) noexcept;

  int positions() const { return positions_; }
  int64_t limit() const { return blocks_max_; }
  int64_t used() const { return used_; }                                   // held by sequences
  int64_t cached() const { return static_cast<int64_t>(unused_.size()); }  // held by no sequence, full and in the index
  int64_t evicted() const { return evicted_; }                             // cached blocks evicted since the start
  int64_t empty() const { return empty_; }                                 // unwritten positions of used blocks
  std::vector<KvBlockTime> take_times();                                   // the newest kTimesMax since the last call
  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }    // every id so far is below it

 private:
  struct Block {
    int holders = 0;
    uint64_t content = 0;  // 0: not full, or not in the index
    // The key of the block while it is in the index.
    Owner owner;
    uint64_t before = 0;
    std::vector<int32_t> tokens;
    std::list<BlockId>::iterator place;  // in unused_ while content != 0 and no sequence holds it, else in spare_
    // For watched blocks; 0 for the others.
    Nanos taken = 0;
    Nanos released = 0;  // at the newest release
  };

  Block& at(BlockId id) { return blocks_[static_cast<size_t>(id)]; }
  bool has(int64_t count) const { return blocks_max_ == 0 || count <= blocks_max_ - used_; }
  BlockId take();
  BlockId add_block();
  void hold(BlockId id);
  void release(BlockId id);
  BlockId find(const Owner& owner, uint64_t before, std::span<const int32_t> tokens);  // -1: none
  void seal(Sequence& sequence);
  void unindex(BlockId id);
  void watch(Block& block);
  void note(KvBlockTime::What what, Nanos since) noexcept;
  void end_watch(Block& block);

  const int positions_;
  const int64_t blocks_max_;
  const Clock& clock_;
  const uint64_t seed_ = random_u64();  // of the hashes of the index
  std::vector<Block> blocks_;
  std::vector<BlockId> free_;
  std::list<BlockId> unused_;  // cached blocks, longest unused first
  std::list<BlockId> spare_;   // the other blocks, in no order: so that a release needs no memory
  std::unordered_multimap<uint64_t, BlockId> index_;
  std::unordered_map<uint64_t, int64_t> found_;  // blocks in the index, by version
  uint64_t last_content_ = 0;
  int64_t used_ = 0;
  int64_t evicted_ = 0;
  int64_t empty_ = 0;
  int64_t watched_among_ = 0;  // blocks taken so far
  std::vector<KvBlockTime> times_;
};

}  // namespace tuft::engine
