#include "telemetry_store/store_thread.h"

#include <chrono>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

#include "base/background_thread.h"

namespace tuft::telemetry_store::internal {
namespace {

constexpr auto kPauseInterval = std::chrono::milliseconds(500);
constexpr auto kCloseBudget = std::chrono::seconds(1);
constexpr size_t kItemBytes = 256;  // beside its content
constexpr int kNice = 5;

size_t bytes_of(const Item& item) {
  if (const auto* records = std::get_if<Records>(&item)) return kItemBytes + records->request.size();
  if (const auto* snapshot = std::get_if<Snapshot>(&item)) return kItemBytes + snapshot->request.size();
  return kItemBytes;
}

bool is_of_user(const Item& item) {
  if (const auto* records = std::get_if<Records>(&item)) return !records->source.owner.empty();
  if (const auto* snapshot = std::get_if<Snapshot>(&item)) return !snapshot->source.owner.empty();
  return false;
}

}  // namespace

StoreThread::StoreThread(size_t bytes_max, Calls calls) : bytes_max_(bytes_max), calls_(std::move(calls)) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

StoreThread::~StoreThread() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool StoreThread::push(Item item) {
  const size_t bytes = bytes_of(item);
  const size_t bytes_max = is_of_user(item) ? bytes_max_ / 2 : bytes_max_;
  {
    MutexLock lock(mutex_);
    if (closed_ || bytes_ + bytes > bytes_max) return false;
    bytes_ += bytes;
    ++pushed_;
    items_.push_back(std::move(item));
  }
  changed_.notify_one();
  return true;
}

bool StoreThread::settle(Nanos budget) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(budget);
  MutexLock lock(mutex_);
  const uint64_t wanted = pushed_;
  while (done_ < wanted) {
    if (worked_.wait_until(mutex_, end) == std::cv_status::timeout && done_ < wanted) return false;
  }
  return true;
}

void StoreThread::run() {
  ::pthread_setname_np(::pthread_self(), "telemetry_store");
  // Of this thread only, which Linux allows.
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
  auto pause_at = std::chrono::steady_clock::now() + kPauseInterval;
  auto close_at = std::chrono::steady_clock::time_point::max();
  while (true) {
    std::deque<Item> items;
    {
      MutexLock lock(mutex_);
      while (items_.empty() && !closed_) {
        if (changed_.wait_until(mutex_, pause_at) == std::cv_status::timeout) break;
      }
      if (closed_ && items_.empty()) break;
      if (closed_) close_at = std::min(close_at, std::chrono::steady_clock::now() + kCloseBudget);
      items.swap(items_);
    }
    for (Item& item : items) {
      if (std::chrono::steady_clock::now() > close_at) break;
      const size_t bytes = bytes_of(item);
      calls_.work(std::move(item));
      if (std::chrono::steady_clock::now() >= pause_at) {
        calls_.pause();
        pause_at = std::chrono::steady_clock::now() + kPauseInterval;
      }
      MutexLock lock(mutex_);
      bytes_ -= bytes;
      ++done_;
    }
    worked_.notify_all();
    if (std::chrono::steady_clock::now() > close_at) break;
    if (std::chrono::steady_clock::now() < pause_at) continue;
    calls_.pause();
    pause_at = std::chrono::steady_clock::now() + kPauseInterval;
  }
  calls_.pause();
}

}  // namespace tuft::telemetry_store::internal
