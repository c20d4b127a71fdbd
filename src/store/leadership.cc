#include "store/leadership.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include "base/background_thread.h"
#include "metrics/leadership.h"
#include "telemetry/log.h"

namespace tuft::store {
namespace {

constexpr int64_t kRenewals = 3;   // in the length of a lease
constexpr int64_t kAttempts = 30;  // in the same time, while the store does not answer
constexpr Nanos kLook = 100 * kMillisecond;

// Goes on while the process is stopped and while the machine sleeps, which Clock::monotonic() does not.
Nanos lease_now() {
  timespec now = {};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

std::string_view explain(LeaderLoss loss) {
  switch (loss) {
    case LeaderLoss::kSuperseded:
      return "another server leads";
    case LeaderLoss::kLapsed:
      return "the lease could not be renewed in time, so another server may lead";
    case LeaderLoss::kFenced:
      return "the store refused a write, because another server leads";
  }
  return "";
}

}  // namespace

std::string_view loss_name(LeaderLoss loss) {
  switch (loss) {
    case LeaderLoss::kSuperseded:
      return "superseded";
    case LeaderLoss::kLapsed:
      return "lapsed";
    case LeaderLoss::kFenced:
      return "fenced";
  }
  return "";
}

Leadership::Leadership(std::unique_ptr<Lease> lease, Options options)
    : lease_(std::move(lease)), options_(std::move(options)), address_(options_.address) {
  metrics::leadership().leader.set(0);
}

Leadership::~Leadership() {
  stop_threads();
}

Result<Lease::Standing> Leadership::campaign() {
  const Nanos began = lease_now();
  TUFT_ASSIGN(Lease::Standing standing, lease_->take(options_.lease, address()));
  if (!standing.leads) return standing;
  token_ = standing.token;
  epoch_ = standing.epoch;
  valid_until_ = began + options_.lease;
  metrics::leadership().leader.set(1);
  metrics::leadership().changes.add(1, {{"event", "elected"}});
  telemetry::log_info("leader.elected", "this server leads now", {{"tuft.leader.epoch", standing.epoch}});
  const SignalsBlocked blocked;
  keeper_ = std::thread([this] { keep(); });
  watcher_ = std::thread([this] { watch(); });
  return standing;
}

bool Leadership::leads() const {
  const Nanos until = valid_until_;
  return until != 0 && !lost_ && (lease_now() < until || !has_standby_);
}

void Leadership::set_address(const std::string& address) {
  MutexLock lock(mutex_);
  address_ = address;
}

std::string Leadership::address() {
  MutexLock lock(mutex_);
  return address_;
}

Fence Leadership::fence() {
  return {lease_->fence_key(), token_, [this] { lose(LeaderLoss::kFenced); }};
}

void Leadership::resign() {
  stop_threads();
  if (valid_until_.exchange(0) == 0 || lost_.exchange(true)) return;
  metrics::leadership().leader.set(0);
  const Status released = lease_->release();
  if (!released.ok()) {
    telemetry::log_warning("leader.not_released", "the lease was not given up, so another server waits for its end: " +
                                                      released.error().message);
  }
}

void Leadership::stop_threads() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  if (keeper_.joinable()) keeper_.join();
}

// Returns false when the threads have to end.
bool Leadership::wait_for(Nanos time) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(time);
  MutexLock lock(mutex_);
  while (!stopping_ && changed_.wait_until(mutex_, end) != std::cv_status::timeout) {
  }
  return !stopping_ && !lost_;
}

void Leadership::keep() {
  bool answered = true;
  while (wait_for(options_.lease / (answered ? kRenewals : kAttempts))) {
    const Nanos began = lease_now();
    const Result<Lease::Renewal> renewal = lease_->renew(options_.lease, address());
    answered = renewal.ok();
    if (!answered) continue;
    if (!renewal->leads) return lose(LeaderLoss::kSuperseded);
    // In this order, so that the watcher never takes a former lease for one that somebody waits for.
    valid_until_ = began + options_.lease;
    has_standby_ = renewal->has_standby;
    metrics::leadership().standby.set(renewal->has_standby ? 1 : 0);
  }
}

void Leadership::watch() {
  bool lapsed = false;
  while (true) {
    const Nanos rest = valid_until_ - lease_now();
    if (rest <= 0 && has_standby_) return lose(LeaderLoss::kLapsed);
    if (lapsed != (rest <= 0)) {
      lapsed = rest <= 0;
      if (lapsed) {
        telemetry::log_warning("leader.lapsed",
                               "the lease could not be renewed in time; no server stands by, so this one goes on");
      }
    }
    if (!wait_for(rest <= 0 ? kLook : std::min(rest, kLook))) return;
  }
}

void Leadership::lose(LeaderLoss loss) {
  if (lost_.exchange(true)) return;
  metrics::leadership().leader.set(0);
  metrics::leadership().changes.add(1, {{"event", loss_name(loss)}});
  const std::string text(explain(loss));
  if (loss == LeaderLoss::kFenced) {
    telemetry::log_error("leader.fenced", text + "; this server stops leading", {{"tuft.leader.epoch", epoch_.load()}});
  } else {
    telemetry::log_error("leader.lost", text + "; this server stops leading",
                         {{"tuft.leader.epoch", epoch_.load()}, {"error.type", loss_name(loss)}});
  }
  if (options_.on_lost) options_.on_lost(loss);
}

}  // namespace tuft::store
