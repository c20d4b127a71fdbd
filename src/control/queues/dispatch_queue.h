// The queue of operations before a worker. Operations that could run now are sent in fair order between users, and only
// as many at once as the worker has slots, because what is at the worker comes back only when it ends.
//
// Long jobs of one user can hold all slots. So a user may always have as many slots as an equal part of them, and at
// least one job, whatever others hold: a job that fits into its user's part is sent at once, out of turn. The worker
// divides its time fairly between users, so that such a job is not in the way of what is there already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <unordered_map>

#include "base/fair_queue.h"
#include "base/mutex.h"
#include "control/types/types.h"

namespace tuft::control {

// Thread-safe.
class DispatchQueue {
 public:
  // The cost of a turn, in tokens: that of a few small samples, so that a new user's turn comes soon.
  static constexpr int64_t kQuantum = 64;

  struct Job {
    UserId user;
    int64_t cost = 1;   // estimated tokens: what users share fairly
    int64_t slots = 1;  // that it takes at the worker
    // Sends the operation. Returns false if there is nothing to send any more, which frees its slots. Called without a
    // lock, on a thread that is in submit(), release() or close().
    std::function<bool()> start;
  };
  struct Load {
    size_t waiting = 0;
    int64_t in_flight = 0;  // slots; jobs out of turn may make them more than slots_max()
  };

  // `most`: as many slots as jobs out of turn may take, too.
  explicit DispatchQueue(int64_t slots_max, int64_t most = std::numeric_limits<int64_t>::max());

  // Queues a job. May start it, and others, before it returns.
  void submit(Job job);
  // Frees the slots of a job of the user that was started and has ended; to be called once for each such job. May start
  // others before it returns.
  void release(const UserId& user, int64_t slots);
  // Starts every waiting job, and from now on each new one at once, whatever slots are free: at the end they only fail.
  void close();

  Load load() const;
  int64_t slots_max() const { return slots_max_; }

 private:
  using SlotsByUser = std::unordered_map<UserId, int64_t>;

  void serve();
  bool take(Job& job);
  bool is_within_part(const Job& job, const SlotsByUser& at_worker) const;
  void free_slots(const UserId& user, int64_t slots) TUFT_REQUIRES(mutex_);

  const int64_t slots_max_;
  const int64_t most_;
  mutable Mutex mutex_;
  FairQueue<UserId, Job> queue_ TUFT_GUARDED_BY(mutex_);
  int64_t in_flight_ TUFT_GUARDED_BY(mutex_) = 0;
  SlotsByUser at_worker_ TUFT_GUARDED_BY(mutex_);  // of users that have any
  bool closed_ TUFT_GUARDED_BY(mutex_) = false;
};

}  // namespace tuft::control
