// The queue of operations before a worker. Operations that could run now are sent in fair order between users, and only
// as many at once as the worker has slots, because what is at the worker cannot be overtaken any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/mutex.h"
#include "control/queues/fair_queue.h"
#include "control/types/types.h"

namespace tuft::control {

// Thread-safe.
class DispatchQueue {
 public:
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
    int64_t in_flight = 0;  // slots
  };

  explicit DispatchQueue(int64_t slots_max);

  // Queues a job. May start it, and others, before it returns.
  void submit(Job job);
  // Frees the slots of a job that was started and has ended. May start others before it returns.
  void release(int64_t slots);
  // Starts every waiting job, and from now on each new one at once, whatever slots are free: at the end they only fail.
  void close();

  Load load() const;
  int64_t slots_max() const { return slots_max_; }

 private:
  void serve();
  bool take(Job& job);

  const int64_t slots_max_;
  mutable Mutex mutex_;
  FairQueue<Job> queue_ TUFT_GUARDED_BY(mutex_);
  int64_t in_flight_ TUFT_GUARDED_BY(mutex_) = 0;
  bool closed_ TUFT_GUARDED_BY(mutex_) = false;
};

}  // namespace tuft::control
