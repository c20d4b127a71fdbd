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
constexpr int kNice = 5;

size_t bytes_of(const Item& item) {
  if (const auto* records = std::get_if<Records>(&item)) return kItemBytes + records->request.size();
  if (const auto* snapshot = std::get_if<Snapshot>(&item)) return kItemBytes + snapshot->request.size();
  return kItemBytes;
}

// The user whose program sent it; empty: the server.
std::string owner_of(const Item& item) {
  if (const auto* records = std::get_if<Records>(&item)) return records->source.owner;
  if (const auto* snapshot = std::get_if<Snapshot>(&item)) return snapshot->source.owner;
  return {};
}

}  // namespace

StoreThread::StoreThread(QueueBytesMax bytes_max, Calls calls) : bytes_max_(bytes_max), calls_(std::move(calls)) {
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

ByteAccount::Hold StoreThread::room_for(const Item& item) const {
  const std::string owner = owner_of(item);
  const ByteAccount::Most of_server{.all = static_cast<int64_t>(bytes_max_.of_server)};
  const ByteAccount::Most of_users{.each = static_cast<int64_t>(bytes_max_.of_user),
                                   .all = static_cast<int64_t>(bytes_max_.of_users)};
  ByteAccount::Hold room = (owner.empty() ? of_server_ : of_users_)->open(owner);
  (void)room.grow_to(static_cast<int64_t>(bytes_of(item)), owner.empty() ? of_server : of_users);
  return room;
}

bool StoreThread::push(Item item) {
  ByteAccount::Hold room = room_for(item);
  if (room.bytes() == 0) return false;
  {
    MutexLock lock(mutex_);
    if (closed_) return false;
    ++pushed_;
    items_.push_back({std::move(item), std::move(room)});
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
    std::deque<Queued> items;
    {
      MutexLock lock(mutex_);
      while (items_.empty() && !closed_) {
        if (changed_.wait_until(mutex_, pause_at) == std::cv_status::timeout) break;
      }
      if (closed_ && items_.empty()) break;
      if (closed_) close_at = std::min(close_at, std::chrono::steady_clock::now() + kCloseBudget);
      items.swap(items_);
    }
    for (auto& [item, room] : items) {
      if (std::chrono::steady_clock::now() > close_at) break;
      calls_.work(std::move(item));
      if (std::chrono::steady_clock::now() >= pause_at) {
        calls_.pause();
        pause_at = std::chrono::steady_clock::now() + kPauseInterval;
      }
      room.shrink_to(0);
      MutexLock lock(mutex_);
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
