// The queue in front of the store, and the one thread behind it. Internal to telemetry_store.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/byte_account.h"
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

// The bytes that may wait. What users' programs send has room of its own, so that it pushes out nothing of the server,
// and each user has a part of that, so that one user's requests leave room for those of others.
struct QueueBytesMax {
  size_t of_server = 0;
  size_t of_user = 0;   // of one user
  size_t of_users = 0;  // of all users together
};
inline constexpr size_t kItemBytes = 256;  // what an item counts beside its content

// Thread-safe. The thread has a lower priority than others: what it does can wait, requests cannot.
class StoreThread {
 public:
  // Called on the thread. `work` takes one item; `pause` is called at least each half second, and at the end.
  struct Calls {
    std::function<void(Item)> work;
    std::function<void()> pause;
  };
  StoreThread(QueueBytesMax bytes_max, Calls calls);
  // Works off what is queued, for at most a second.
  ~StoreThread();
  StoreThread(const StoreThread&) = delete;
  StoreThread& operator=(const StoreThread&) = delete;

  // Returns false if the queue has no room for it.
  bool push(Item item) TUFT_EXCLUDES(mutex_);
  // Waits until what was pushed before is worked off. Returns false after `budget`.
  bool settle(Nanos budget) TUFT_EXCLUDES(mutex_);

 private:
  struct Queued {
    Item item;
    ByteAccount::Hold room;
  };

  void run() TUFT_EXCLUDES(mutex_);
  // Returns a hold of nothing if there is no room.
  ByteAccount::Hold room_for(const Item& item) const;

  const QueueBytesMax bytes_max_;
  const Calls calls_;
  const std::shared_ptr<ByteAccount> of_server_ = std::make_shared<ByteAccount>();
  const std::shared_ptr<ByteAccount> of_users_ = std::make_shared<ByteAccount>();
  mutable Mutex mutex_;
  CondVar changed_;
  CondVar worked_;
  std::deque<Queued> items_ TUFT_GUARDED_BY(mutex_);
  uint64_t pushed_ TUFT_GUARDED_BY(mutex_) = 0;
  uint64_t done_ TUFT_GUARDED_BY(mutex_) = 0;
  bool closed_ TUFT_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tuft::telemetry_store::internal
