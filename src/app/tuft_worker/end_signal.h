// EndSignal: waits for SIGTERM or SIGINT, and limits how long the process may take to end afterwards.
#pragma once

#include <thread>

#include "base/clock.h"
#include "base/mutex.h"

namespace tuft::app {

// Construct it before any thread starts: it blocks the signals in all threads that start later.
class EndSignal {
 public:
  // After a signal the process ends with exit code 0 after `grace` at the latest.
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
