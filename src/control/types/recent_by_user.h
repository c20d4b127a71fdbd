// Remembers values by ids for their users, at most so many in all. Over that, the user who has the most forgets the
// oldest, so that no user makes another forget who has less. A call costs the logarithm of the number of users.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <unordered_map>
#include <utility>

#include "base/ranking.h"
#include "base/sharded_map.h"
#include "control/types/types.h"

namespace tuft::control {

template <typename Id, typename Value>
class RecentByUser {
 public:
  explicit RecentByUser(size_t count_max) : count_max_(count_max) {}

  // Does nothing if the id is known as another user's. If it is known as this user's, it keeps its age.
  void note(const Id& id, const UserId& user, Value value) {
    if (Entry* known = entries_.find(id); known != nullptr) {
      if (known->user == user) known->value = std::move(value);
      return;
    }
    entries_.emplace(id, Entry{user, std::move(value)});
    std::deque<Id>& ids = of_user_[user];
    ids.push_back(id);
    by_count_.change(user, ids.size() - 1, ids.size());
    if (entries_.size() > count_max_) forget_one();
  }

  // Returns null if the id is not known, or not as this user's. Valid until the next note().
  const Value* find(const Id& id, const UserId& user) const {
    const Entry* entry = entries_.find(id);
    return entry == nullptr || entry->user != user ? nullptr : &entry->value;
  }

 private:
  struct Entry {
    UserId user;
    Value value;
  };

  void forget_one() {
    const UserId user = by_count_.largest().second;
    const auto place = of_user_.find(user);
    std::deque<Id>& ids = place->second;
    entries_.erase(ids.front());
    ids.pop_front();
    by_count_.change(user, ids.size() + 1, ids.size());
    if (ids.empty()) of_user_.erase(place);
  }

  const size_t count_max_;
  ShardedMap<Id, Entry> entries_;
  std::unordered_map<UserId, std::deque<Id>> of_user_;  // oldest first
  Ranking<UserId, size_t> by_count_;                    // the users of of_user_
};

}  // namespace tuft::control
