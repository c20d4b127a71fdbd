// SIGTERM and SIGINT as something to wait for, with a limit on how long the end may take.
#pragma once

#include <thread>

#include "base/clock.h"
#include "base/mutex.h"

namespace tuft::app {

// Make it before any other thread: the signals are blocked for all that follow.
class EndSignal {
 public:
  // Once a signal has come, the process ends with exit code 0 after `grace` at the latest.
  explicit EndSignal(Nanos grace);
  ~EndSignal();
  EndSignal(const EndSignal&) = delete;
  EndSignal& operator=(const EndSignal&) = delete;

  void wait();
  bool come() const;

 private:
  void listen(Nanos grace);

  mutable Mutex mutex_;
  CondVar changed_;
  bool come_ TUFT_GUARDED_BY(mutex_) = false;
  bool over_ TUFT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tuft::app
