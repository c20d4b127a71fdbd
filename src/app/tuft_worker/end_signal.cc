#include "app/tuft_worker/end_signal.h"

#include <chrono>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
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
  come_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
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
  if (come_fd_ >= 0) close(come_fd_);
}

void EndSignal::wait(int descriptor, Nanos limit) const {
  pollfd fds[2] = {{come_fd_, POLLIN, 0}, {descriptor, POLLIN, 0}};
  const int milliseconds = limit == 0 ? -1 : static_cast<int>(limit / kMillisecond);
  while (poll(fds, descriptor < 0 ? 1 : 2, milliseconds) < 0) {
  }
}

void EndSignal::listen(Nanos grace) {
  const sigset_t set = end_signals();
  int number = 0;
  sigwait(&set, &number);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(grace);
  come_ = true;
  const uint64_t one = 1;
  (void)!write(come_fd_, &one, sizeof one);
  MutexLock lock(mutex_);
  while (!over_) {
    // A pass of a large model, or loading one, cannot be interrupted; end the process.
    if (changed_.wait_until(mutex_, deadline) == std::cv_status::timeout) _exit(0);
  }
}

}  // namespace tuft::app
