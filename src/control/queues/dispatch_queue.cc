#include "control/queues/dispatch_queue.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"

namespace tuft::control {
namespace {

// The queues that this thread serves. An answer that arrives inside start() must not serve the same queue again, or the
// stack would grow with every answer.
thread_local std::vector<const void*> serving;

}  // namespace

DispatchQueue::DispatchQueue(int64_t slots_max, int64_t most) : slots_max_(slots_max), most_(most), queue_(kQuantum) {}

void DispatchQueue::submit(Job job) {
  const UserId user = job.user;
  const int64_t cost = job.cost;
  {
    MutexLock lock(mutex_);
    queue_.push(user, cost, std::move(job));
  }
  serve();
}

void DispatchQueue::release(const UserId& user, int64_t slots) {
  {
    MutexLock lock(mutex_);
    free_slots(user, slots);
  }
  serve();
}

void DispatchQueue::free_slots(const UserId& user, int64_t slots) {
  const auto held = at_worker_.find(user);
  TUFT_CHECK(held != at_worker_.end() && held->second >= slots, "slots are freed once");
  held->second -= slots;
  if (held->second == 0) at_worker_.erase(held);
  in_flight_ -= slots;
}

void DispatchQueue::close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  serve();
}

DispatchQueue::Load DispatchQueue::load() const {
  MutexLock lock(mutex_);
  return {queue_.size(), in_flight_};
}

// Looks at the present state only: whatever happened before, a user without a job at the worker is not left waiting.
bool DispatchQueue::is_within_part(const Job& job, const SlotsByUser& at_worker) const {
  const auto held = at_worker.find(job.user);
  if (held == at_worker.end()) return true;
  return held->second + job.slots <= slots_max_ / static_cast<int64_t>(at_worker.size());
}

// A job that needs more than all slots is started when nothing else is in flight, or as its user's only one.
bool DispatchQueue::take(Job& job) {
  MutexLock lock(mutex_);
  if (queue_.empty()) return false;
  if (closed_ || in_flight_ == 0 || in_flight_ + queue_.front().slots <= slots_max_) {
    job = queue_.pop();
  } else if (in_flight_ >= most_) {
    return false;
  } else {
    // Not a reference, because clang's analysis of locks does not know that a lambda runs under its caller's lock.
    const SlotsByUser* const at_worker = &at_worker_;
    auto found = queue_.pop_out_of_turn([&](const Job& waiting) { return is_within_part(waiting, *at_worker); });
    if (!found) return false;
    job = *std::move(found);
  }
  in_flight_ += job.slots;
  at_worker_[job.user] += job.slots;
  return true;
}

void DispatchQueue::serve() {
  if (std::find(serving.begin(), serving.end(), this) != serving.end()) return;  // it looks again before it stops
  serving.push_back(this);
  for (Job job; take(job); job = Job()) {
    if (job.start()) continue;
    MutexLock lock(mutex_);
    free_slots(job.user, job.slots);
  }
  serving.pop_back();
}

}  // namespace tuft::control
