// The open sequences of an engine by id, and what a step feeds them, for any back end. Confined to the engine thread,
// like the engine.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/result.h"
#include "engine/back_end/checks.h"
#include "engine/engine.h"

namespace tuft::engine {

template <typename Sequence>
class SequenceTable {
 public:
  SequenceId add(Sequence sequence) {
    while (next_ == 0 || sequences_.contains(next_)) ++next_;
    const SequenceId id = next_++;
    sequences_.emplace(id, std::move(sequence));
    return id;
  }

  // Valid until it is removed.
  Result<Sequence*> find(SequenceId id) {
    const auto found = sequences_.find(id);
    if (found != sequences_.end()) return &found->second;
    return not_found("sequence " + std::to_string(id) + " is not open", "sequence_not_open");
  }

  void remove(SequenceId id) { sequences_.erase(id); }

  // Of a step's feeds, in their order; an error where they are not what engine.h says.
  Result<std::vector<Sequence*>> of(const ModelSpec& model, std::span<const Feed> feeds) {
    std::vector<Sequence*> fed;
    std::set<SequenceId> seen;
    for (const Feed& feed : feeds) {
      TUFT_ASSIGN(Sequence * sequence, find(feed.sequence));
      if (!seen.insert(feed.sequence).second) {
        return invalid_argument("a sequence is fed twice in one step", "feed_twice");
      }
      TUFT_TRY(check_feed(model, feed));
      fed.push_back(sequence);
    }
    return fed;
  }

 private:
  std::map<SequenceId, Sequence> sequences_;
  SequenceId next_ = 1;
};

// Indices of the sequences, those with the same `adapter` next to each other: its products are computed once for them.
template <typename Sequence>
std::vector<size_t> by_adapter(std::span<Sequence* const> fed) {
  std::vector<size_t> order(fed.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t left, size_t right) {
    return std::less<>()(fed[left]->adapter.get(), fed[right]->adapter.get());
  });
  return order;
}

// A row of a step whose logits are wanted, as a LogitsSink has it.
struct WantedRow {
  size_t feed = 0;
  int row = 0;
};
// In the order in which the sink gets them.
std::vector<WantedRow> wanted_rows(std::span<const Feed> feeds);

}  // namespace tuft::engine
