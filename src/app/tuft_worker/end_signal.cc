#include "app/tuft_worker/end_signal.h"

#include <chrono>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

namespace tuft::app {
namespace {

sigset_t end_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

EndSignal::EndSignal(Nanos grace) {
  const sigset_t set = end_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this, grace] { listen(grace); });
}

EndSignal::~EndSignal() {
  {
    MutexLock lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  pthread_kill(thread_.native_handle(), SIGTERM);  // wakes it if it is still in sigwait()
  thread_.join();
}

void EndSignal::wait() {
  MutexLock lock(mutex_);
  while (!come_) changed_.wait(mutex_);
}

bool EndSignal::come() const {
  MutexLock lock(mutex_);
  return come_;
}

void EndSignal::listen(Nanos grace) {
  const sigset_t set = end_signals();
  int number = 0;
  sigwait(&set, &number);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(grace);
  MutexLock lock(mutex_);
  come_ = true;
  changed_.notify_all();
  while (!over_) {
    // A pass of a large model, or loading one, cannot be interrupted; end the process.
    if (changed_.wait_until(mutex_, deadline) == std::cv_status::timeout) _exit(0);
  }
}

}  // namespace tuft::app
