// A thread-safe queue that users share: they take turns (fair_queue.h), and the waiting items of each are bounded. A
// user without waiting items is never refused because of others.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/fair_queue.h"
#include "base/mutex.h"
#include "control/types/types.h"

namespace tuft::control {

// All in the unit of the items' cost.
struct TenantBounds {
  int64_t quantum = 1;   // of one turn (fair_queue.h)
  int64_t user_max = 1;  // waiting, of one user
  int64_t all_max = 1;   // waiting, of all users together
};

template <typename Item>
class TenantQueue {
 public:
  enum class Push : uint8_t { kTaken, kUserFull, kFull, kClosed };

  explicit TenantQueue(const TenantBounds& bounds) : bounds_(bounds), queue_(bounds.quantum) {}

  // Leaves `item` untouched unless it returns kTaken. Requires: `cost` >= 1.
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

  // Adds an item without a bound, for work that continues an item that was accepted. Returns false once closed.
  bool push(const UserId& user, int64_t cost, Item&& item) TUFT_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      if (closed_) return false;
      queue_.push(user, cost, std::move(item));
    }
    ready_.notify_one();
    return true;
  }

  // Waits for an item. Returns nothing once the queue is closed and empty.
  std::optional<Item> pop() TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (queue_.empty() && !closed_) ready_.wait(mutex_);
    if (queue_.empty()) return std::nullopt;
    return queue_.pop();
  }

  // Refuses further items and wakes all waiters. Queued items can still be popped.
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
  FairQueue<UserId, Item> queue_ TUFT_GUARDED_BY(mutex_);
  bool closed_ TUFT_GUARDED_BY(mutex_) = false;
};

}  // namespace tuft::control
