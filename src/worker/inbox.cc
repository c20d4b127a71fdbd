#include "worker/inbox.h"

#include <chrono>
#include <condition_variable>
#include <new>
#include <thread>
#include <utility>

namespace tuft::worker {

Error stopping_error() {
  return unavailable("the worker is stopping; try again later", "worker_stopping");
}

std::optional<Error> Inbox::push(InboxItem& item) {
  const bool is_call =
      std::holds_alternative<std::unique_ptr<Operation>>(item) || std::holds_alternative<NewSample>(item);
  {
    MutexLock lock(mutex_);
    if (closed_) return stopping_error();
    if (is_call && unanswered_ >= calls_max_) {
      return Error{ErrorCode::kResourceExhausted,
                   "the worker has " + std::to_string(calls_max_) + " calls waiting; try again later",
                   "worker_queue_full"};
    }
    items_.push_back(std::move(item));
    if (is_call) ++unanswered_;
  }
  arrived_.notify_one();
  return std::nullopt;
}

void Inbox::deliver(InboxItem item) {
  for (bool has_arrived = false; !has_arrived;) {
    try {
      (void)push(item);
      has_arrived = true;
    } catch (const std::bad_alloc&) {
      std::this_thread::yield();
    }
  }
}

void Inbox::take(std::deque<InboxItem>& items, Nanos wait) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(wait);
  MutexLock lock(mutex_);
  while (wait > 0 && items_.empty() && !closed_) {
    if (arrived_.wait_until(mutex_, until) == std::cv_status::timeout) break;
  }
  items_.swap(items);
}

void Inbox::answered(size_t calls) {
  MutexLock lock(mutex_);
  unanswered_ -= calls;
}

size_t Inbox::unanswered() const {
  MutexLock lock(mutex_);
  return unanswered_;
}

bool Inbox::empty() const {
  MutexLock lock(mutex_);
  return items_.empty();
}

bool Inbox::close() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(closed_, true)) return false;
  }
  arrived_.notify_all();
  return true;
}

bool Inbox::is_closed() const {
  MutexLock lock(mutex_);
  return closed_;
}

}  // namespace tuft::worker
