// The futures that have finished, in the order in which they are evicted, and the ids of those that were evicted.
//
// Over the bytes that may be kept, the user who holds the most loses futures: first those that were delivered longest
// ago, then the oldest of the rest. So no user can push out the results of a smaller one. Of the evicted ids kGoneMax
// are remembered, the newest of each user, so that a late poll learns kGone instead of kNotFound. A call costs the
// logarithm of the number of users, however many futures there are.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>

#include "base/ranking.h"
#include "base/result.h"
#include "control/futures/future.h"
#include "control/types/recent_by_user.h"

namespace tuft::control {

// Not thread-safe: belongs to FutureStore and its lock.
class FinishedFutures {
 public:
  static constexpr size_t kGoneMax = 65'536;

  // Requires: the outcome of `future` is set, and the bytes of its result. Counts them.
  void add(const FuturePtr& future);
  // A client has got the outcome. Returns false if one had before, or if the future was taken out.
  bool deliver(Future& future);
  static bool is_delivered(const Future& future) { return future.is_delivered_; }
  int64_t bytes() const { return bytes_; }

  // Takes out the next one if more than `all_max` are kept, or more than `each_max` of one user; null otherwise.
  FuturePtr evict_over(int64_t all_max, int64_t each_max);
  // Takes out the oldest one if it finished before `oldest`; null otherwise.
  FuturePtr evict_before(Nanos oldest);
  // Takes out a future that is kept. Clients who ask for it get `why`; null: that it was evicted.
  FuturePtr take_out(Future& future, std::shared_ptr<const Error> why = nullptr);

  // `why`: what a poll is told; null: it was evicted.
  void remember_gone(const RequestId& request, const UserId& user, std::shared_ptr<const Error> why);
  // Returns why there is no such future: kGone to its user while that is remembered, else kNotFound.
  Error why_gone(const UserId& user, const RequestId& request) const;

 private:
  // The futures of one user; both lists oldest first, by their end and by their delivery.
  struct Shelf {
    int64_t bytes = 0;
    std::list<Future*> unread;
    std::list<Future*> delivered;
  };

  // Counts the change of a user's bytes. Forgets users who have nothing left.
  void count(const UserId& user, int64_t change);

  int64_t bytes_ = 0;
  std::list<FuturePtr> finished_;  // of all users, oldest first
  std::unordered_map<UserId, Shelf> shelves_;
  Ranking<UserId, int64_t> by_bytes_;                                     // the users of shelves_
  RecentByUser<RequestId, std::shared_ptr<const Error>> gone_{kGoneMax};  // null: evicted
};

}  // namespace tuft::control
