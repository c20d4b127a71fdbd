#include "engine/sample/block_pool.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"

namespace tuft::engine {
namespace {

// The hash only selects candidates in the index; the tokens of a candidate are then compared. Clients choose tokens, so
// the seed is secret: nobody can make many candidates for one hash.
uint64_t spread(uint64_t seed, const BlockPool::Owner& owner, uint64_t before, std::span<const int32_t> tokens) {
  uint64_t hash = owner.version * 0x9e3779b97f4a7c15ULL + owner.scope + seed;
  hash = (hash ^ before) * 0xbf58476d1ce4e5b9ULL;
  for (const int32_t token : tokens) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x94d049bb133111ebULL;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

int BlockPool::adopt(Sequence& sequence, std::span<const int32_t> tokens) {
  if (static_cast<int64_t>(sequence.blocks.size()) * positions_ != sequence.length) return 0;
  const auto size = static_cast<size_t>(positions_);
  size_t adopted = 0;
  sequence.blocks.reserve(sequence.blocks.size() + tokens.size() / size);
  while (tokens.size() - adopted > size) {
    const BlockId id = find(sequence.owner, sequence.content, tokens.subspan(adopted, size));
    if (id < 0) break;
    const Block& block = at(id);
    if (block.holders == 0 && block.taken != 0) note(KvBlockTime::What::kReuseGap, block.released);
    hold(id);
    sequence.blocks.push_back(id);
    sequence.content = at(id).content;
    adopted += size;
  }
  sequence.length += static_cast<int>(adopted);
  return static_cast<int>(adopted);
}

bool BlockPool::extend(Sequence& sequence, int count) {
  const auto wanted = static_cast<size_t>((sequence.length + count + positions_ - 1) / positions_);
  if (wanted <= sequence.blocks.size()) return true;
  if (!has(static_cast<int64_t>(wanted - sequence.blocks.size()))) return false;
  sequence.blocks.reserve(wanted);
  while (sequence.blocks.size() < wanted) {
    sequence.blocks.push_back(take());
    empty_ += positions_;
  }
  return true;
}

void BlockPool::commit(Sequence& sequence, std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    sequence.tail.push_back(token);
    ++sequence.length;
    --empty_;
    if (sequence.tail.size() == static_cast<size_t>(positions_)) seal(sequence);
  }
}

void BlockPool::seal(Sequence& sequence) {
  BlockId& slot = sequence.blocks[static_cast<size_t>(sequence.length / positions_ - 1)];
  if (const BlockId same = find(sequence.owner, sequence.content, sequence.tail); same >= 0) {
    hold(same);
    release(slot);
    slot = same;
  } else {
    Block& block = at(slot);
    block.owner = sequence.owner;
    block.before = sequence.content;
    block.tokens = sequence.tail;
    int64_t& found = found_[block.owner.version];
    index_.emplace(spread(seed_, block.owner, block.before, block.tokens), slot);
    ++found;
    block.content = ++last_content_;
  }
  sequence.content = at(slot).content;
  sequence.tail.clear();
}

std::optional<BlockPool::Fork> BlockPool::fork(const Sequence& source) {
  const auto full = static_cast<size_t>(source.length / positions_);
  const bool partial = source.length % positions_ != 0;
  if (partial && !has(1)) return std::nullopt;
  Fork fork{source, std::nullopt};
  // take() is the last that needs memory.
  fork.sequence.blocks.resize(full + (partial ? 1 : 0));
  if (partial) {
    fork.copy.emplace(source.blocks[full], take());
    empty_ += positions_ - source.length % positions_;
    fork.sequence.blocks[full] = fork.copy->second;
  }
  for (size_t i = 0; i < full; ++i) hold(fork.sequence.blocks[i]);
  return fork;
}

// Releases the last block first, so that eviction never removes a beginning before its continuation.
void BlockPool::close(Sequence& sequence) noexcept {
  empty_ -= static_cast<int64_t>(sequence.blocks.size()) * positions_ - sequence.length;
  for (; !sequence.blocks.empty(); sequence.blocks.pop_back()) release(sequence.blocks.back());
  sequence = {};
}

void BlockPool::forget(uint64_t version) noexcept {
  if (!found_.contains(version)) return;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    Block& block = blocks_[i];
    if (block.content == 0 || block.owner.version != version) continue;
    const auto id = static_cast<BlockId>(i);
    if (block.holders == 0) {
      spare_.splice(spare_.end(), unused_, block.place);
      free_.push_back(id);
      end_watch(block);
    }
    unindex(id);
  }
}

// Takes all memory that the block can ever need here.
BlockId BlockPool::add_block() {
  const auto id = static_cast<BlockId>(blocks_.size());
  if (blocks_.size() == blocks_.capacity()) {
    const size_t more = std::max<size_t>(16, 2 * blocks_.size());
    free_.reserve(more);
    blocks_.reserve(more);
  }
  spare_.push_front(id);
  blocks_.emplace_back().place = spare_.begin();
  return id;
}

BlockId BlockPool::take() {
  BlockId id = 0;
  if (!free_.empty()) {
    id = free_.back();
    free_.pop_back();
  } else if (blocks_max_ == 0 || size() < blocks_max_) {
    id = add_block();
  } else {
    TUFT_CHECK(!unused_.empty(), "no block is free or cached");
    id = unused_.front();
    spare_.splice(spare_.end(), unused_, unused_.begin());
    unindex(id);
    ++evicted_;
    Block& block = at(id);
    if (block.taken != 0) note(KvBlockTime::What::kIdle, block.released);
    end_watch(block);
  }
  at(id).holders = 1;
  ++used_;
  watch(at(id));
  return id;
}

void BlockPool::hold(BlockId id) {
  Block& block = at(id);
  if (block.holders++ > 0) return;
  spare_.splice(spare_.end(), unused_, block.place);
  ++used_;
}

void BlockPool::release(BlockId id) {
  Block& block = at(id);
  if (--block.holders > 0) return;
  --used_;
  if (block.content != 0 && blocks_max_ > 0) {
    unused_.splice(unused_.end(), spare_, block.place);
    if (block.taken != 0) block.released = clock_.monotonic();
    return;
  }
  if (block.content != 0) unindex(id);
  free_.push_back(id);
  end_watch(block);
}

void BlockPool::watch(Block& block) {
  if (watched_among_++ % kWatchEvery == 0) block.taken = clock_.monotonic();
}

// An observation for which there is no memory is dropped.
void BlockPool::note(KvBlockTime::What what, Nanos since) noexcept try {
  if (times_.size() == kTimesMax) times_.erase(times_.begin());
  times_.push_back({what, clock_.monotonic() - since});
} catch (const std::bad_alloc&) {
}

void BlockPool::end_watch(Block& block) {
  if (block.taken != 0) note(KvBlockTime::What::kLifetime, block.taken);
  block.taken = 0;
}

std::vector<KvBlockTime> BlockPool::take_times() {
  return std::exchange(times_, {});
}

BlockId BlockPool::find(const Owner& owner, uint64_t before, std::span<const int32_t> tokens) {
  const auto [begin, end] = index_.equal_range(spread(seed_, owner, before, tokens));
  for (auto entry = begin; entry != end; ++entry) {
    const Block& block = at(entry->second);
    if (block.before == before && block.owner == owner &&
        std::equal(tokens.begin(), tokens.end(), block.tokens.begin(), block.tokens.end())) {
      return entry->second;
    }
  }
  return -1;
}

void BlockPool::unindex(BlockId id) {
  Block& block = at(id);
  const auto [begin, end] = index_.equal_range(spread(seed_, block.owner, block.before, block.tokens));
  for (auto entry = begin; entry != end; ++entry) {
    if (entry->second != id) continue;
    index_.erase(entry);
    break;
  }
  if (const auto found = found_.find(block.owner.version); --found->second == 0) found_.erase(found);
  block.content = 0;
  block.tokens.clear();
}

}  // namespace tuft::engine
