// The queue in front of the store, and the one thread behind it. Internal to telemetry_store.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "telemetry_store/store.h"

namespace tuft::telemetry_store::internal {

struct Records {
  RecordType type = RecordType::kSpans;
  std::string request;
  Source source;
};
struct Snapshot {
  std::string request;
  Source source;
};
using Item = std::variant<Records, Snapshot, RunStep>;

// Thread-safe. The thread has a lower priority than others: what it does can wait, requests cannot.
class StoreThread {
 public:
  // Called on the thread. `work` takes one item; `pause` is called at least each half second, and at the end.
  struct Calls {
    std::function<void(Item)> work;
    std::function<void()> pause;
  };
  StoreThread(size_t bytes_max, Calls calls);
  // Works off what is queued, for at most a second.
  ~StoreThread();
  StoreThread(const StoreThread&) = delete;
  StoreThread& operator=(const StoreThread&) = delete;

  // Returns false if the queue is full. It is for what users' programs send when it is half full, so that they push out
  // nothing of the server.
  bool push(Item item) TUFT_EXCLUDES(mutex_);
  // Waits until what was pushed before is worked off. Returns false after `budget`.
  bool settle(Nanos budget) TUFT_EXCLUDES(mutex_);

 private:
  void run() TUFT_EXCLUDES(mutex_);

  const size_t bytes_max_;
  const Calls calls_;
  mutable Mutex mutex_;
  CondVar changed_;
  CondVar worked_;
  std::deque<Item> items_ TUFT_GUARDED_BY(mutex_);
  size_t bytes_ TUFT_GUARDED_BY(mutex_) = 0;
  uint64_t pushed_ TUFT_GUARDED_BY(mutex_) = 0;
  uint64_t done_ TUFT_GUARDED_BY(mutex_) = 0;
  bool closed_ TUFT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tuft::telemetry_store::internal
