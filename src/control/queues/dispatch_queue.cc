#include "control/queues/dispatch_queue.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tuft::control {
namespace {

// In tokens. The cost of a few small samples, so that a new user's turn comes soon.
constexpr int64_t kQuantum = 64;

// The queues that this thread serves. An answer that arrives inside start() must not serve the same queue again, or the
// stack would grow with every answer.
thread_local std::vector<const void*> serving;

}  // namespace

DispatchQueue::DispatchQueue(int64_t slots_max) : slots_max_(slots_max), queue_(kQuantum) {}

void DispatchQueue::submit(Job job) {
  const UserId user = job.user;
  const int64_t cost = job.cost;
  {
    MutexLock lock(mutex_);
    queue_.push(user, cost, std::move(job));
  }
  serve();
}

void DispatchQueue::release(int64_t slots) {
  {
    MutexLock lock(mutex_);
    in_flight_ -= slots;
  }
  serve();
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

// A job that needs more than all slots is started when nothing else is in flight.
bool DispatchQueue::take(Job& job) {
  MutexLock lock(mutex_);
  if (queue_.empty()) return false;
  const bool fits = in_flight_ == 0 || in_flight_ + queue_.front().slots <= slots_max_;
  if (!fits && !closed_) return false;
  job = queue_.pop();
  in_flight_ += job.slots;
  return true;
}

void DispatchQueue::serve() {
  if (std::find(serving.begin(), serving.end(), this) != serving.end()) return;  // it looks again before it stops
  serving.push_back(this);
  for (Job job; take(job); job = Job()) {
    if (job.start()) continue;
    MutexLock lock(mutex_);
    in_flight_ -= job.slots;
  }
  serving.pop_back();
}

}  // namespace tuft::control
