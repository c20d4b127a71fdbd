#include "app/tuft/sweeper.h"

#include <utility>

#include "base/background_thread.h"
#include "telemetry/request_trace.h"

namespace tuft::app {

Sweeper::Sweeper(std::function<void()> sweep, Nanos interval) : sweep_(std::move(sweep)), interval_(interval) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
  ::pthread_setname_np(thread_.native_handle(), "sweeper");
}

Sweeper::~Sweeper() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Sweeper::run() {
  telemetry::trace_set_thread_info("sweeper");
  do {
    sweep_();
  } while (!stops_within(interval_));
}

bool Sweeper::stops_within(Nanos duration) {
  const auto end = time_point(system_clock().monotonic() + duration);
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (changed_.wait_until(mutex_, end) == std::cv_status::timeout) break;
  }
  return stopping_;
}

}  // namespace tuft::app
