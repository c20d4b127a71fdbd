#include "engine/sample/ranks.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/sample/row_kernels.h"

namespace tuft::engine {
namespace {

constexpr size_t kOffered = 16;

bool before(const Ranked& left, const Ranked& right) {
  return left.first != right.first ? left.first > right.first : left.second < right.second;
}

}  // namespace

void first_entries(std::span<const float> values, size_t k, std::vector<Ranked>& best) {
  best.clear();
  if (k == 0) return;
  // Each time so many are held, the first k stay. A later entry has to be above the last of them: its index is larger.
  const size_t held_max = std::max<size_t>(2 * k, 64);
  const auto cut = [&] {
    std::nth_element(best.begin(), best.begin() + static_cast<ptrdiff_t>(k - 1), best.end(), before);
    best.resize(k);
    return best.back().first;
  };
  size_t i = 0;
  for (; i < std::min(held_max, values.size()); ++i) best.emplace_back(values[i], static_cast<int32_t>(i));
  if (i < values.size()) {
    float least = cut();
    const auto offer = [&](size_t index) {
      if (!(values[index] > least)) return;
      best.emplace_back(values[index], static_cast<int32_t>(index));
      if (best.size() == held_max) least = cut();
    };
    // Offers some at a time, because a row that ascends has nothing to skip.
    const auto above = [](float value) { return std::nextafter(value, INFINITY); };
    while ((i = find_at_least(values, i, above(least))) < values.size()) {
      for (const size_t end = std::min(i + kOffered, values.size()); i < end; ++i) offer(i);
    }
  }
  if (best.size() > k) cut();
  std::sort(best.begin(), best.end(), before);
}

// A radix selection: each round divides what is left by the next bits of the value, from the largest down.
template <typename Enough>
WeightRanks::Leading WeightRanks::select(const Enough& enough) {
  constexpr struct {
    int shift, bits;
  } kRounds[] = {{21, 11}, {10, 11}, {0, 10}};
  left_.resize(weights_.size());
  for (size_t i = 0; i < weights_.size(); ++i) left_[i] = std::bit_cast<uint32_t>(weights_[i]);
  size_t count = 0;
  double weight = 0;
  size_t chosen = 0;
  for (const auto& [shift, bits] : kRounds) {
    const uint32_t mask = (1U << bits) - 1;
    counts_.fill(0);
    sums_.fill(0);
    for (const uint32_t entry : left_) {
      const size_t bucket = (entry >> shift) & mask;
      ++counts_[bucket];
      sums_[bucket] += static_cast<double>(std::bit_cast<float>(entry));
    }
    chosen = kBuckets;
    for (size_t bucket = mask + 1; bucket-- > 0;) {
      if (counts_[bucket] == 0) continue;
      if (chosen != kBuckets) {
        count += counts_[chosen];
        weight += sums_[chosen];
      }
      chosen = bucket;
      if (enough(count + counts_[bucket], weight + sums_[bucket])) break;
    }
    std::erase_if(left_, [&](uint32_t entry) { return ((entry >> shift) & mask) != chosen; });
  }
  Leading leading{left_.front(), 0, weight};
  do {
    ++leading.ties;
    leading.weight += static_cast<double>(std::bit_cast<float>(leading.bits));
  } while (leading.ties < left_.size() && !enough(count + leading.ties, leading.weight));
  return leading;
}

WeightRanks::Leading WeightRanks::with_count(size_t count) {
  return select([count](size_t entries, double) { return entries >= count; });
}

WeightRanks::Leading WeightRanks::with_weight(double weight) {
  return select([weight](size_t, double sum) { return sum >= weight; });
}

WeightRanks::Leading WeightRanks::above_weight(double weight) {
  return select([weight](size_t, double sum) { return sum > weight; });
}

int32_t WeightRanks::last(const Leading& leading) const {
  size_t left = leading.ties;
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (std::bit_cast<uint32_t>(weights_[i]) == leading.bits && --left == 0) return static_cast<int32_t>(i);
  }
  return 0;  // cannot happen: select() counted them
}

}  // namespace tuft::engine
