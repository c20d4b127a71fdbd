// The way to a worker: operations that could run now go there in fair order between users, and only so many at once
// that a newcomer waits for little. What is at the worker stays there; what waits here can still be overtaken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/mutex.h"
#include "control/fair_queue.h"
#include "control/types.h"

namespace tuft::control {

// Thread-safe.
class DispatchQueue {
 public:
  struct Job {
    UserId user;
    int64_t cost = 1;   // estimated tokens: what users share fairly
    int64_t slots = 1;  // of the worker's, that it takes
    // Sends it. False: there was nothing to send any more, and its slots are free. Called without a lock, on a thread
    // that is in submit() or release().
    std::function<bool()> start;
  };
  struct Load {
    size_t waiting = 0;
    int64_t in_flight = 0;  // slots
  };

  explicit DispatchQueue(int64_t slots_max);

  // May start it, and others, before it returns.
  void submit(Job job);
  // An operation that was started has ended. May start others before it returns.
  void release(int64_t slots);
  // Starts everything that waits, which has been told to give up; and from now on at once.
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
