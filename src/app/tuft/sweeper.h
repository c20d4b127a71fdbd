// The thread that does the time-driven work: of the control plane, or of a server that stands by.
#pragma once

#include <functional>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"

namespace tuft::app {

// Calls `sweep` on its own thread, first at once and then `interval` after each return, until it is destroyed; the
// destructor waits for a call that runs. For ControlPlane::sweep(), and for the keys of a server that stands by.
class Sweeper {
 public:
  explicit Sweeper(std::function<void()> sweep, Nanos interval = 250 * kMillisecond);
  ~Sweeper() TUFT_EXCLUDES(mutex_);
  Sweeper(const Sweeper&) = delete;
  Sweeper& operator=(const Sweeper&) = delete;

 private:
  void run();
  bool stops_within(Nanos duration) TUFT_EXCLUDES(mutex_);

  const std::function<void()> sweep_;
  const Nanos interval_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ TUFT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tuft::app
