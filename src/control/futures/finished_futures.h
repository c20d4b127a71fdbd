// The futures that have finished, in the order in which they are evicted, and the ids of those that were evicted.
//
// Over the bytes that may be kept, the longest delivered futures go first, then the oldest of the rest. The newest
// kGoneMax evicted ids are remembered, so that a late poll learns kGone instead of kNotFound. Each call costs the same
// however many there are.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>

#include "base/result.h"
#include "base/sharded_map.h"
#include "control/futures/future.h"

namespace tuft::control {

// Not thread-safe: belongs to FutureStore and its lock.
class FinishedFutures {
 public:
  static constexpr size_t kGoneMax = 65'536;

  // Requires: the outcome of `future` is set. Counts its bytes.
  void add(const FuturePtr& future);
  // A client has got the outcome. Returns false if one had before.
  bool deliver(Future& future);
  static bool is_delivered(const Future& future) { return future.in_delivered_.has_value(); }
  int64_t bytes() const { return bytes_; }

  // Takes out the next one if more than `bytes_max` are kept; null otherwise.
  FuturePtr evict_over(int64_t bytes_max);
  // Takes out the oldest one if it finished before `oldest`; null otherwise.
  FuturePtr evict_before(Nanos oldest);

  // `why`: what a poll is told; null: it was evicted.
  void remember_gone(const RequestId& request, const UserId& user, std::shared_ptr<const Error> why);
  // Returns why there is no such future: kGone to its user while that is remembered, else kNotFound.
  Error why_gone(const UserId& user, const RequestId& request) const;

 private:
  FuturePtr take_out(Future& future);

  struct Gone {
    UserId user;
    std::shared_ptr<const Error> why;  // null: evicted
  };

  int64_t bytes_ = 0;
  std::list<FuturePtr> finished_;  // oldest first
  std::list<Future*> delivered_;   // longest delivered first
  ShardedMap<RequestId, Gone> gone_;
  std::deque<RequestId> gone_order_;
};

}  // namespace tuft::control
