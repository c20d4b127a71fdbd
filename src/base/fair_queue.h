// A queue with deficit round robin between users of equal weight. In every round each user receives `quantum` of cost
// to spend. A user with waiting items keeps what is left, so that an expensive item is reached after several rounds; a
// user without waiting items keeps nothing. The items of one user keep their order.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <list>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>

namespace tuft {

// `User` is a key of std::unordered_map.
template <typename User, typename Item>
class FairQueue {
 public:
  explicit FairQueue(int64_t quantum) : quantum_(quantum) {}

  // `cost` in any unit, at least 1. If there is no memory (std::bad_alloc), the queue and `item` are unchanged.
  void push(const User& user, int64_t cost, Item&& item) {
    cost = std::max<int64_t>(cost, 1);
    auto found = by_user_.find(user);
    if (found != by_user_.end()) {
      found->second->entries.emplace_back(cost, std::move(item));
    } else {
      std::list<UserQueue> added;
      UserQueue& queue = added.emplace_back(UserQueue{user, {}, 0, 0, false});
      found = by_user_.emplace(user, added.begin()).first;
      try {
        queue.entries.emplace_back(cost, std::move(item));
      } catch (const std::bad_alloc&) {
        by_user_.erase(found);
        throw;
      }
      users_.splice(users_.end(), added);
    }
    found->second->cost += cost;
    cost_ += cost;
    ++size_;
  }

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  // Returns the cost of all waiting items.
  int64_t cost() const { return cost_; }
  int64_t cost_of(const User& user) const {
    const auto found = by_user_.find(user);
    return found == by_user_.end() ? 0 : found->second->cost;
  }

  // Returns the item that pop() returns next. Requires: !empty().
  const Item& front() { return choose(anybody)->entries.front().item; }

  Item pop() { return take(*choose(anybody)); }

  // Returns the item that pop_if(may) returns next; null if there is none. Valid until the next change.
  template <typename May>
  const Item* front_if(const May& may) {
    UserQueue* const queue = choose(may);
    return queue == nullptr ? nullptr : &queue->entries.front().item;
  }

  // Returns the next item of the users for whom `may` returns true; nothing if they have none. The others keep their
  // turns.
  template <typename May>
  std::optional<Item> pop_if(const May& may) {
    UserQueue* const queue = choose(may);
    if (queue == nullptr) return std::nullopt;
    return take(*queue);
  }

  // Returns the oldest item of the first user, in order of turns, whose oldest item `may` accepts; nothing if there is
  // none. The user pays for it as for any other, so that its next turn comes later.
  template <typename May>
  std::optional<Item> pop_out_of_turn(const May& may) {
    const auto found = std::find_if(users_.begin(), users_.end(),
                                    [&](const UserQueue& queue) { return may(queue.entries.front().item); });
    if (found == users_.end()) return std::nullopt;
    users_.splice(users_.begin(), users_, found);
    return take(users_.front());
  }

 private:
  struct Entry {
    int64_t cost = 1;
    Item item;
  };
  struct UserQueue {
    User user;
    std::deque<Entry> entries;
    int64_t cost = 0;
    int64_t deficit = 0;
    bool has_turn = false;  // this round's quantum is in the deficit
  };

  static bool anybody(const User&) { return true; }

  // Brings the user whose item is next to the front; null if no user may have one.
  template <typename May>
  UserQueue* choose(const May& may) {
    for (size_t passed = 0;; ++passed) {
      if (passed == users_.size()) {
        if (!skip_rounds(may)) return nullptr;
        passed = 0;
      }
      UserQueue& queue = users_.front();
      if (may(queue.user)) {
        if (!std::exchange(queue.has_turn, true)) queue.deficit += quantum_;
        if (queue.entries.front().cost <= queue.deficit) return &queue;
        queue.has_turn = false;
      }
      users_.splice(users_.end(), users_, users_.begin());
    }
  }

  // Requires that `queue` is at the front.
  Item take(UserQueue& queue) {
    const int64_t cost = queue.entries.front().cost;
    queue.deficit -= cost;
    queue.cost -= cost;
    cost_ -= cost;
    Item item = std::move(queue.entries.front().item);
    queue.entries.pop_front();
    --size_;
    if (queue.entries.empty()) {
      by_user_.erase(queue.user);
      users_.pop_front();
    }
    return item;
  }

  // Advances the users by the rounds in which none of them can pay. Returns false if no user may.
  template <typename May>
  bool skip_rounds(const May& may) {
    constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
    int64_t rounds = kNone;
    for (const UserQueue& queue : users_) {
      if (may(queue.user)) rounds = std::min(rounds, (queue.entries.front().cost - queue.deficit - 1) / quantum_);
    }
    if (rounds == kNone) return false;
    for (UserQueue& queue : users_) {
      if (may(queue.user)) queue.deficit += rounds * quantum_;
    }
    return true;
  }

  const int64_t quantum_;
  size_t size_ = 0;
  int64_t cost_ = 0;
  std::list<UserQueue> users_;  // the first has its turn
  std::unordered_map<User, typename std::list<UserQueue>::iterator> by_user_;
};

}  // namespace tuft
