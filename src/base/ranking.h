// Names in the order of their numbers, to find the one with the largest: usually the user who has the most of something
// and therefore loses some of it.
#pragma once

#include <set>
#include <utility>

namespace tuft {

// A call costs the logarithm of the number of names. Not thread-safe.
template <typename Name, typename Number>
class Ranking {
 public:
  // Changes the number of a name from `before` to `now`. A name whose number is 0 is not in the ranking.
  void change(const Name& name, Number before, Number now) {
    order_.erase({before, name});
    if (now != 0) order_.emplace(now, name);
  }
  bool empty() const { return order_.empty(); }
  // Requires that it is not empty. Valid until the next change.
  const std::pair<Number, Name>& largest() const { return *order_.rbegin(); }

 private:
  std::set<std::pair<Number, Name>> order_;
};

}  // namespace tuft
