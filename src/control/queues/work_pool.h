// Threads for the work of users that must not run on the thread that causes it, such as decoding a large body.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/fair_queue.h"
#include "base/mutex.h"
#include "base/result.h"
#include "control/queues/tenant_queue.h"
#include "control/types/types.h"

namespace tuft::control {

inline constexpr std::string_view kWorkQueueFull = "work_queue_full";

// Users take turns by the cost of their tasks (fair_queue.h). A user has one thread while other users wait, and never
// all threads, so that a long task of one user delays nobody else. Tasks of one user may run side by side and end in
// any order. Thread-safe.
class WorkPool {
 public:
  using Task = std::function<void()>;

  // The costs in `bounds` have the unit of post().
  WorkPool(int threads, const TenantBounds& bounds);
  ~WorkPool() { stop(); }
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // Queues a task of `cost` >= 1. With an error the task is never called: kResourceExhausted if too much work waits
  // (never for a user's only task), kUnavailable once closed. `reason` is the reason of the former.
  Status post(const UserId& user, int64_t cost, Task task, std::string_view reason = kWorkQueueFull)
      TUFT_EXCLUDES(mutex_);
  // Queues a task that continues an accepted one, so no limit applies. Returns false once closed.
  bool post_rest(const UserId& user, int64_t cost, Task task) TUFT_EXCLUDES(mutex_);

  // Refuses further tasks. The queued ones are still called; those that ask closed() can be brief.
  void close() TUFT_EXCLUDES(mutex_);
  bool closed() const TUFT_EXCLUDES(mutex_);
  // Closes the pool and returns when the last task has ended. Must not be called from a task, nor from two threads.
  void stop() TUFT_EXCLUDES(mutex_);

 private:
  struct Entry {
    UserId user;
    Task task;
  };

  void run() TUFT_EXCLUDES(mutex_);
  std::optional<Entry> take_locked() TUFT_REQUIRES(mutex_);

  const TenantBounds bounds_;
  const int threads_per_user_max_;
  mutable Mutex mutex_;
  CondVar changed_;
  FairQueue<UserId, Entry> queue_ TUFT_GUARDED_BY(mutex_);
  std::unordered_map<UserId, int> running_ TUFT_GUARDED_BY(mutex_);  // no entry: none
  bool closed_ TUFT_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tuft::control
