// Selection from a row of the vocabulary without sorting it. An entry is before another one if its value is larger, or
// equal with a smaller index. Internal to Distribution.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tuft::engine {

using Ranked = std::pair<float, int32_t>;  // value, index

// Sets `best` to the first k entries, in order; k <= values.size(). The time grows with values.size() + k log(k),
// whatever the values are. Requires: no value is NaN.
void first_entries(std::span<const float> values, size_t k, std::vector<Ranked>& best);

// The first entries of a row of weights, up to and including the entry with a given count or sum of weights before it.
// Every call reads the row a fixed number of times, whatever the weights are. Keeps its buffers; confined to one
// thread.
class WeightRanks {
 public:
  // The entries above `bits`, and the first `ties` of those that equal it.
  struct Leading {
    uint32_t bits = 0;  // of the smallest value; floats above 0 have the order of their bits
    size_t ties = 0;
    double weight = 0;  // of all of them

    bool is_shorter_than(const Leading& other) const {
      return bits != other.bits ? bits > other.bits : ties < other.ties;
    }
  };

  // All weights are above 0; there is at least one. They are borrowed until the next load().
  void load(std::span<const float> weights) { weights_ = weights; }

  // Returns the fewest leading entries that are at least `count`, weigh at least `weight`, or weigh more than `weight`;
  // all of them if there are not so many.
  Leading with_count(size_t count);
  Leading with_weight(double weight);
  Leading above_weight(double weight);
  // Returns the index of the last of the leading entries.
  int32_t last(const Leading& leading) const;

 private:
  template <typename Enough>
  Leading select(const Enough& enough);

  static constexpr int kBuckets = 2048;
  std::span<const float> weights_;
  std::vector<uint32_t> left_;  // bits of the entries in the bucket that was chosen last
  std::array<size_t, kBuckets> counts_ = {};
  std::array<double, kBuckets> sums_ = {};
};

}  // namespace tuft::engine
