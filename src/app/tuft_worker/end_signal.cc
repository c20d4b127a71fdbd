#include "app/tuft_worker/end_signal.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/background_thread.h"

namespace tuft::app {
namespace {

sigset_t end_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

void make_readable(int event) {
  const uint64_t one = 1;
  (void)!write(event, &one, sizeof one);
}

}  // namespace

EndSignal::EndSignal(Nanos drain, Nanos grace) : drain_(drain) {
  const sigset_t set = end_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  come_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  drained_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
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
  for (const int descriptor : {come_fd_, drained_fd_}) {
    if (descriptor >= 0) close(descriptor);
  }
}

void EndSignal::wait(int descriptor, Nanos limit) const {
  pollfd fds[2] = {{come_fd_, POLLIN, 0}, {descriptor, POLLIN, 0}};
  const int milliseconds = limit == 0 ? -1 : static_cast<int>(limit / kMillisecond);
  while (poll(fds, descriptor < 0 ? 1 : 2, milliseconds) < 0) {
  }
}

Nanos EndSignal::rest() const {
  const Nanos drained_at = drained_at_;
  return drained_at == 0 ? drain_ : std::max<Nanos>(0, drained_at - system_clock().monotonic());
}

void EndSignal::listen(Nanos grace) {
  const sigset_t set = end_signals();
  int number = 0;
  sigwait(&set, &number);
  const Nanos drained_at = system_clock().monotonic() + drain_;
  drained_at_ = drained_at;
  make_readable(come_fd_);
  if (!wait_until(drained_at)) return;
  make_readable(drained_fd_);
  // A pass of a large model, or loading one, cannot be interrupted; end the process.
  if (wait_until(drained_at + grace)) _exit(0);
}

bool EndSignal::wait_until(Nanos at) {
  MutexLock lock(mutex_);
  while (!over_) {
    if (changed_.wait_until(mutex_, time_point(at)) == std::cv_status::timeout) return true;
  }
  return false;
}

}  // namespace tuft::app
