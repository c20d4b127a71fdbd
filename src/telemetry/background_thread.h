// What the module's own threads have in common. Internal to telemetry.
#pragma once

#include <chrono>
#include <pthread.h>
#include <signal.h>

#include "base/clock.h"

namespace tuft::telemetry::internal {

// While it lives, threads that are started take no signals: those are for the main thread.
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

// Clock::monotonic()'s time, as waits on a CondVar take it.
inline std::chrono::steady_clock::time_point time_point(Nanos monotonic) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(monotonic));
}

}  // namespace tuft::telemetry::internal
