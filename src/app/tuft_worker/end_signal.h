// EndSignal: waits for SIGTERM or SIGINT, and limits how long the process goes on and ends afterwards.
#pragma once

#include <atomic>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"

namespace tuft::app {

// Construct it before any thread starts: it blocks the signals in all threads that start later.
class EndSignal {
 public:
  // After a signal the process may go on for `drain`. It ends with exit code 0 `grace` after that at the latest.
  EndSignal(Nanos drain, Nanos grace);
  ~EndSignal();
  EndSignal(const EndSignal&) = delete;
  EndSignal& operator=(const EndSignal&) = delete;

  // Waits for a signal, until `descriptor` is readable, and no longer than `limit`. -1 and 0: not for these.
  void wait(int descriptor = -1, Nanos limit = 0) const;
  bool come() const { return drained_at_ != 0; }
  // Returns what is left of `drain`; all of it before a signal.
  Nanos rest() const;
  // Return descriptors that are readable once a signal has come, and once nothing of `drain` is left; nobody may read
  // them.
  int come_fd() const { return come_fd_; }
  int drained_fd() const { return drained_fd_; }

 private:
  void listen(Nanos grace);
  // Returns false if this object ends before.
  bool wait_until(Nanos at) TUFT_EXCLUDES(mutex_);

  const Nanos drain_;
  Mutex mutex_;
  CondVar changed_;
  int come_fd_ = -1;
  int drained_fd_ = -1;
  std::atomic<Nanos> drained_at_ = 0;  // by Clock::monotonic(); 0: no signal has come
  bool over_ TUFT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tuft::app
