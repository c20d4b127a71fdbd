// EndSignal: waits for SIGTERM or SIGINT, and limits how long the process may take to end afterwards.
#pragma once

#include <atomic>
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

  // Waits for a signal, until `descriptor` is readable, and no longer than `limit`. -1 and 0: not for these.
  void wait(int descriptor = -1, Nanos limit = 0) const;
  bool come() const { return come_; }
  // Returns a descriptor that is readable once a signal has come; nobody may read it.
  int descriptor() const { return come_fd_; }

 private:
  void listen(Nanos grace);

  mutable Mutex mutex_;
  CondVar changed_;
  int come_fd_ = -1;  // readable once a signal has come
  std::atomic<bool> come_ = false;
  bool over_ TUFT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tuft::app
