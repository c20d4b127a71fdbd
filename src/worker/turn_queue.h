// TurnQueue: the jobs that wait for a thread. Tenants take turns, one job each (base/fair_queue.h). So the save of a
// tenant waits for one job of each other tenant, and not for the hundreds of one.
#pragma once

#include <cstddef>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/fair_queue.h"
#include "base/mutex.h"

namespace tuft::worker {

// Thread-safe.
template <typename Job>
class TurnQueue {
 public:
  explicit TurnQueue(size_t capacity) : capacity_(capacity) {}

  // Returns false, and leaves the job unchanged, if the queue is full or closed, or if there is no memory.
  bool try_push(const std::string& tenant, Job&& job) TUFT_EXCLUDES(mutex_) try {
    {
      MutexLock lock(mutex_);
      if (closed_ || jobs_.size() >= capacity_) return false;
      jobs_.push(tenant, 1, std::move(job));
    }
    ready_.notify_one();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }

  // Waits for a job. Returns nothing when the queue is closed and empty.
  std::optional<Job> pop() TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (jobs_.empty() && !closed_) ready_.wait(mutex_);
    if (jobs_.empty()) return std::nullopt;
    return jobs_.pop();
  }

  // The same without waiting: returns nothing when the queue is empty.
  std::optional<Job> try_pop() TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (jobs_.empty()) return std::nullopt;
    return jobs_.pop();
  }

  // Refuses further jobs and wakes the waiter. Queued jobs can still be popped.
  void close() TUFT_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  size_t size() const TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return jobs_.size();
  }

 private:
  const size_t capacity_;
  mutable Mutex mutex_;
  CondVar ready_;
  FairQueue<std::string, Job> jobs_ TUFT_GUARDED_BY(mutex_){1};
  bool closed_ TUFT_GUARDED_BY(mutex_) = false;
};

}  // namespace tuft::worker
