#include "app/tuft/signals.h"

#include <atomic>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

namespace tuft::app {
namespace {

std::atomic<int> g_late_status = 1;

sigset_t stop_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  ::sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

void take_over_signals() {
  sigset_t set = stop_signals();
  ::sigaddset(&set, SIGHUP);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

bool stop_requested() {
  const sigset_t set = stop_signals();
  const timespec now = {};
  return ::sigtimedwait(&set, nullptr, &now) > 0;
}

int next_signal(Nanos limit) {
  sigset_t set = stop_signals();
  ::sigaddset(&set, SIGHUP);
  const timespec a_while = {limit / kSecond, limit % kSecond};
  return ::sigtimedwait(&set, nullptr, &a_while);
}

void limit_shutdown(Nanos limit, int status) {
  g_late_status = status;
  ::signal(SIGALRM, [](int) { ::_exit(g_late_status); });
  itimerval timer = {};
  timer.it_value.tv_sec = limit / kSecond;
  timer.it_value.tv_usec = limit % kSecond / kMicrosecond;
  ::setitimer(ITIMER_REAL, &timer, nullptr);
}

}  // namespace tuft::app
