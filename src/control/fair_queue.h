// Whose turn it is: deficit round robin between users of equal weight. In every round each user may take out `quantum`
// of cost; what is left over stays with them while they wait, and a dear item waits until enough came together. One who
// was not there saves nothing. The items of one user keep their order.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <list>
#include <unordered_map>
#include <utility>

#include "control/types.h"

namespace tuft::control {

template <typename Item>
class FairQueue {
 public:
  explicit FairQueue(int64_t quantum) : quantum_(quantum) {}

  // `cost` in any unit, at least 1.
  void push(const UserId& user, int64_t cost, Item item) {
    const auto [found, is_new] = by_user_.try_emplace(user);
    if (is_new) found->second = lines_.insert(lines_.end(), Line{user, {}, 0, 0, false});
    Entry entry{std::max<int64_t>(cost, 1), std::move(item)};
    found->second->cost += entry.cost;
    cost_ += entry.cost;
    found->second->entries.push_back(std::move(entry));
    ++size_;
  }

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  // Of what waits.
  int64_t cost() const { return cost_; }
  int64_t cost_of(const UserId& user) const {
    const auto found = by_user_.find(user);
    return found == by_user_.end() ? 0 : found->second->cost;
  }

  // What pop() gives next. Not on an empty queue.
  const Item& front() {
    for (size_t passed = 0;; ++passed) {
      if (passed == lines_.size()) {
        skip_rounds();
        passed = 0;
      }
      Line& line = lines_.front();
      if (!std::exchange(line.has_turn, true)) line.deficit += quantum_;
      if (line.entries.front().cost <= line.deficit) return line.entries.front().item;
      line.has_turn = false;
      lines_.splice(lines_.end(), lines_, lines_.begin());
    }
  }

  Item pop() {
    front();
    Line& line = lines_.front();
    const int64_t cost = line.entries.front().cost;
    line.deficit -= cost;
    line.cost -= cost;
    cost_ -= cost;
    Item item = std::move(line.entries.front().item);
    line.entries.pop_front();
    --size_;
    if (line.entries.empty()) {
      by_user_.erase(line.user);
      lines_.pop_front();
    }
    return item;
  }

 private:
  struct Entry {
    int64_t cost = 1;
    Item item;
  };
  struct Line {
    UserId user;
    std::deque<Entry> entries;
    int64_t cost = 0;
    int64_t deficit = 0;
    bool has_turn = false;  // this round's quantum is in the deficit
  };

  // Nobody can pay in the next rounds, so that they need not be walked through.
  void skip_rounds() {
    int64_t rounds = std::numeric_limits<int64_t>::max();
    for (const Line& line : lines_) {
      rounds = std::min(rounds, (line.entries.front().cost - line.deficit - 1) / quantum_);
    }
    for (Line& line : lines_) line.deficit += rounds * quantum_;
  }

  const int64_t quantum_;
  size_t size_ = 0;
  int64_t cost_ = 0;
  std::list<Line> lines_;  // the first has its turn
  std::unordered_map<UserId, typename std::list<Line>::iterator> by_user_;
};

}  // namespace tuft::control
