// Helpers for threads that a module starts.
#pragma once

#include <chrono>
#include <pthread.h>
#include <signal.h>

#include "base/clock.h"

namespace tuft {

// Blocks all signals in this thread and in threads that it starts, during its lifetime; the main thread handles
// signals.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &previous_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t previous_{};
};

// Converts a time of Clock::monotonic() for CondVar::wait_until().
inline std::chrono::steady_clock::time_point time_point(Nanos monotonic) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(monotonic));
}

}  // namespace tuft
