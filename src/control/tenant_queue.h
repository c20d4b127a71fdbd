// A queue between threads that users share: they take turns (fair_queue.h), and each may have only so much waiting. Who
// has nothing waiting is never refused for what others have. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "control/fair_queue.h"
#include "control/types.h"

namespace tuft::control {

// In the unit of the items' cost.
struct TenantBounds {
  int64_t quantum = 1;   // of one turn
  int64_t user_max = 1;  // waiting, of one user
  int64_t all_max = 1;   // waiting, of all users together
};

template <typename Item>
class TenantQueue {
 public:
  enum class Push : uint8_t { kTaken, kUserFull, kFull, kClosed };

  explicit TenantQueue(const TenantBounds& bounds) : bounds_(bounds), queue_(bounds.quantum) {}

  // Leaves `item` untouched where it is not taken. `cost` is at least 1.
  Push try_push(const UserId& user, int64_t cost, Item&& item) TUFT_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      if (closed_) return Push::kClosed;
      const int64_t waiting = queue_.cost_of(user);
      if (waiting > 0 && waiting + cost > bounds_.user_max) return Push::kUserFull;
      if (waiting > 0 && queue_.cost() + cost > bounds_.all_max) return Push::kFull;
      queue_.push(user, cost, std::move(item));
    }
    ready_.notify_one();
    return Push::kTaken;
  }

  // For what goes on with something that was taken before, and is bounded by that: refused only when closed.
  bool push(const UserId& user, int64_t cost, Item&& item) TUFT_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      if (closed_) return false;
      queue_.push(user, cost, std::move(item));
    }
    ready_.notify_one();
    return true;
  }

  // Waits for an item; nothing once the queue is closed and empty.
  std::optional<Item> pop() TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (queue_.empty() && !closed_) ready_.wait(mutex_);
    if (queue_.empty()) return std::nullopt;
    return queue_.pop();
  }

  // Refuses further items and wakes every waiter. What is queued can still be popped.
  void close() TUFT_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

 private:
  const TenantBounds bounds_;
  mutable Mutex mutex_;
  CondVar ready_;
  FairQueue<Item> queue_ TUFT_GUARDED_BY(mutex_);
  bool closed_ TUFT_GUARDED_BY(mutex_) = false;
};

}  // namespace tuft::control
