#include "control/queues/work_pool.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "control/types/errors.h"
#include "telemetry/request_trace.h"

namespace tuft::control {

WorkPool::WorkPool(int threads, const TenantBounds& bounds)
    : bounds_(bounds), threads_per_user_max_(std::max(1, threads - 1)), queue_(bounds.quantum) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

Status WorkPool::post(const UserId& user, int64_t cost, Task task, std::string_view reason) {
  {
    MutexLock lock(mutex_);
    if (closed_) return shutting_down();
    const int64_t waiting = queue_.cost_of(user);
    const bool own = waiting > 0 && waiting + cost > bounds_.user_max;
    if (own || (waiting > 0 && queue_.cost() + cost > bounds_.all_max)) {
      return Error{ErrorCode::kResourceExhausted,
                   own ? "too many of your requests are waiting; send this one again when some have been answered"
                       : "too many requests are waiting; try again in a moment",
                   std::string(reason)};
    }
    queue_.push(user, cost, {user, std::move(task)});
  }
  changed_.notify_one();
  return {};
}

bool WorkPool::post_rest(const UserId& user, int64_t cost, Task task) {
  {
    MutexLock lock(mutex_);
    if (closed_) return false;
    queue_.push(user, cost, {user, std::move(task)});
  }
  changed_.notify_one();
  return true;
}

void WorkPool::close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

bool WorkPool::closed() const {
  MutexLock lock(mutex_);
  return closed_;
}

void WorkPool::stop() {
  close();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

std::optional<WorkPool::Entry> WorkPool::take_locked() {
  // Not a reference, because clang's analysis of locks does not know that a lambda runs under its caller's lock.
  const std::unordered_map<UserId, int>* const running = &running_;
  const auto threads_of = [running](const UserId& user) {
    const auto found = running->find(user);
    return found == running->end() ? 0 : found->second;
  };
  auto entry = queue_.pop_if([&](const UserId& user) { return threads_of(user) == 0; });
  if (entry) return entry;
  const int most = closed_ ? std::numeric_limits<int>::max() : threads_per_user_max_;
  return queue_.pop_if([&](const UserId& user) { return threads_of(user) < most; });
}

void WorkPool::run() {
  telemetry::trace_set_thread_info("work");
  while (true) {
    std::optional<Entry> entry;
    {
      MutexLock lock(mutex_);
      while (!(entry = take_locked())) {
        if (closed_ && queue_.empty()) return;
        changed_.wait(mutex_);
      }
      ++running_[entry->user];
    }
    entry->task();
    entry->task = nullptr;  // what it holds is destroyed before the user gets another thread
    MutexLock lock(mutex_);
    const auto found = running_.find(entry->user);
    if (--found->second == 0) running_.erase(found);
  }
}

}  // namespace tuft::control
