// The sequences of a decode step, as the back ends read them.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "engine/decode_engine.h"

namespace tuft::engine {

template <typename BackEnd>
struct OpenSequence {
  std::shared_ptr<typename BackEnd::Adapter> adapter;  // as it was at open(); null: the base model alone
  typename BackEnd::KvSequence kv;
};

// Returns the indices of the sequences of a step, with those of one adapter next to each other, so that a back end
// computes the products of an adapter once for all of them.
template <typename Sequence>
std::vector<size_t> by_adapter(std::span<Sequence* const> fed) {
  std::vector<size_t> order(fed.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t left, size_t right) {
    return std::less<>()(fed[left]->adapter.get(), fed[right]->adapter.get());
  });
  return order;
}

// A row of a step whose logits are requested; feed and row as in LogitsRow.
struct WantedRow {
  size_t feed = 0;
  int row = 0;
};
// Returns the requested rows in the order in which the sink receives them.
std::vector<WantedRow> wanted_rows(std::span<const Feed> feeds);

}  // namespace tuft::engine
