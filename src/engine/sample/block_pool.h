// The blocks of a KV cache: which sequence holds which, which are free, and which still hold what a later prompt may
// begin with. Numbers only: a back end keeps the memory behind them.
//
// A block has room for some positions. A full one is never written again, so sequences share it, and it is found again
// by what it holds: the adapter's version, the scope, and every token up to its end. A full block that nobody holds
// stays so until its place is needed; the one that was held longest ago goes first. Confined to one thread.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"

namespace tuft::engine {

using BlockId = int32_t;

class BlockPool {
 public:
  static constexpr int kWatchEvery = 64;
  static constexpr size_t kTimesMax = 256;

  // What the contents of a sequence depend on besides its tokens, and who may share them.
  struct Owner {
    uint64_t version = 0;  // of the adapter; 0: the base model
    uint64_t scope = 0;
    friend bool operator==(const Owner&, const Owner&) = default;
  };

  // What one sequence holds. It goes back through close().
  struct Sequence {
    Owner owner;
    int length = 0;               // committed positions
    std::vector<BlockId> blocks;  // in order; may reach beyond `length`
    uint64_t content = 0;         // of the newest full block, with all before it; 0: there is none
    std::vector<int32_t> tail;    // tokens of the block that is not full
  };

  // blocks_max 0: no limit, and then a block is kept only while a sequence holds it. `clock` outlives this; it is read
  // for the blocks that are watched, one in kWatchEvery that are taken.
  BlockPool(int positions, int64_t blocks_max, const Clock& clock = system_clock())
      : positions_(positions), blocks_max_(blocks_max), clock_(clock) {}

  // Takes over full blocks that hold the next of `tokens`, which are about to be fed. Gives the number of tokens that
  // are there now: whole blocks, and fewer than tokens.size(). 0 where the sequence does not end with a full block.
  int adopt(Sequence& sequence, std::span<const int32_t> tokens);
  // Room for `count` more positions. False, and nothing changed, where there are too few blocks.
  bool extend(Sequence& sequence, int count);
  // The next positions are written and hold these tokens. A block that another one equals is given up for it.
  void commit(Sequence& sequence, std::span<const int32_t> tokens);

  struct Fork {
    Sequence sequence;
    // The block that is not full: what to copy.
    std::optional<std::pair<BlockId, BlockId>> copy;
  };
  // nullopt where there is no block for the copy.
  std::optional<Fork> fork(const Sequence& source);
  void close(Sequence& sequence);

  // Nothing will begin with what this version of an adapter computed.
  void forget(uint64_t version);

  int positions() const { return positions_; }
  int64_t limit() const { return blocks_max_; }
  int64_t used() const { return used_; }                                   // held by sequences
  int64_t cached() const { return static_cast<int64_t>(unused_.size()); }  // held by nobody, but full and found
  int64_t evicted() const { return evicted_; }  // cached ones whose place was needed, since the start
  int64_t empty() const { return empty_; }      // positions of used blocks that nothing was written to
  std::vector<KvBlockTime> take_times();        // since the last call, the newest kTimesMax
  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }  // ids that were ever given out are below it

 private:
  struct Block {
    int holders = 0;
    uint64_t content = 0;  // 0: not full, or not to be found
    // What makes it up, while it can be found.
    Owner owner;
    uint64_t before = 0;
    std::vector<int32_t> tokens;
    std::list<BlockId>::iterator unused;  // while content != 0 and nobody holds it
    // Of one that is watched; 0 for the others.
    Nanos taken = 0;
    Nanos released = 0;  // newest
  };

  Block& at(BlockId id) { return blocks_[static_cast<size_t>(id)]; }
  bool has(int64_t count) const { return blocks_max_ == 0 || count <= blocks_max_ - used_; }
  BlockId take();
  void hold(BlockId id);
  void release(BlockId id);
  BlockId find(const Owner& owner, uint64_t before, std::span<const int32_t> tokens);  // -1: none
  void seal(Sequence& sequence);
  void unindex(BlockId id);
  void watch(Block& block);
  void note(KvBlockTime::What what, Nanos since);
  void end_watch(Block& block);

  const int positions_;
  const int64_t blocks_max_;
  const Clock& clock_;
  std::vector<Block> blocks_;
  std::vector<BlockId> free_;
  std::list<BlockId> unused_;  // cached ones, longest unused first
  std::unordered_multimap<uint64_t, BlockId> index_;
  std::unordered_map<uint64_t, int64_t> found_;  // blocks in the index, by version
  uint64_t last_content_ = 0;
  int64_t used_ = 0;
  int64_t evicted_ = 0;
  int64_t empty_ = 0;
  int64_t watched_among_ = 0;  // blocks that were taken
  std::vector<KvBlockTime> times_;
};

}  // namespace tuft::engine
