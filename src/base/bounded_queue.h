// A queue between threads with a fixed capacity. Thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "base/mutex.h"

namespace tuft {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // Returns false, and leaves `value` unchanged, if the queue is full or closed.
  bool try_push(T&& value) TUFT_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(value));
    }
    ready_.notify_one();
    return true;
  }

  std::optional<T> try_pop() TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return pop_locked();
  }

  // Waits for an item. Returns nothing when the queue is closed and empty.
  std::optional<T> pop() TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (items_.empty() && !closed_) ready_.wait(mutex_);
    return pop_locked();
  }

  // Refuses further pushes and wakes all waiters. Queued items can still be popped.
  void close() TUFT_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  size_t size() const TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return items_.size();
  }

 private:
  std::optional<T> pop_locked() TUFT_REQUIRES(mutex_) {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  const size_t capacity_;
  mutable Mutex mutex_;
  CondVar ready_;
  std::deque<T> items_ TUFT_GUARDED_BY(mutex_);
  bool closed_ TUFT_GUARDED_BY(mutex_) = false;
};

}  // namespace tuft
