// Inbox: what other threads pass to the engine thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "worker/adapter_pager.h"
#include "worker/operation.h"
#include "worker/sample_requests.h"

namespace tuft::worker {

struct CancelSample {
  SampleRequests::Ticket ticket = 0;
};
// The file thread has run an operation.
struct FileDone {
  std::string queue;  // the name of its adapter queue
};
using InboxItem = std::variant<std::unique_ptr<Operation>, NewSample, CancelSample, FileDone, std::unique_ptr<PageJob>>;

// The answer to all calls that the worker can no longer execute.
Error stopping_error();

// Thread-safe. Calls (operations and samples) count until they are answered.
class Inbox {
 public:
  // `calls_max`: calls without an answer; more are refused with kResourceExhausted "worker_queue_full".
  explicit Inbox(size_t calls_max) : calls_max_(calls_max) {}

  // Moves the item into the inbox, or returns the refusal. Each call needs one answered(). If it throws std::bad_alloc,
  // the item is unchanged.
  std::optional<Error> push(InboxItem& item);
  // The same for an item that is no call and must arrive: waits while there is no memory for it.
  void deliver(InboxItem item);
  // Moves all items into `items`, which is empty. Blocks for at most `wait` until there is one or the inbox is closed.
  // Needs no memory.
  void take(std::deque<InboxItem>& items, Nanos wait);
  void answered(size_t calls);
  size_t unanswered() const;
  bool empty() const;  // no item waits to be taken

  // Refuses all items from now on. Returns false if it was closed before.
  bool close();
  bool is_closed() const;

 private:
  const size_t calls_max_;
  mutable Mutex mutex_;
  CondVar arrived_;
  std::deque<InboxItem> items_ TUFT_GUARDED_BY(mutex_);
  size_t unanswered_ TUFT_GUARDED_BY(mutex_) = 0;
  bool closed_ TUFT_GUARDED_BY(mutex_) = false;
};

}  // namespace tuft::worker
