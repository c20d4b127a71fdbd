#include "store/threaded_store.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <signal.h>
#include <thread>
#include <utility>
#include <variant>

#include "base/mutex.h"
#include "telemetry/log.h"

namespace tuft::store {
namespace {

constexpr size_t kGroupWritesMax = 512;
constexpr size_t kGroupBytesMax = size_t{16} << 20;
constexpr auto kProbeInterval = std::chrono::seconds(1);
constexpr Nanos kCloseBudget = 5 * kSecond;

struct WriteRequest {
  Write write;
  KeyValue::WriteDone done;
};
struct GetRequest {
  std::string key;
  telemetry::SpanContext trace;
  KeyValue::GetDone done;
};
struct ScanRequest {
  Prefixes prefixes;  // one, if only the keys are wanted
  bool keys_only = false;
  telemetry::SpanContext trace;
  KeyValue::ScanDone done;
};
struct Request {
  std::variant<WriteRequest, GetRequest, ScanRequest> what;
  Nanos began = 0;
  size_t bytes = 0;
};

size_t bytes_of(const Write& write) {
  size_t bytes = 0;
  for (const Change& change : write.changes) bytes += change.key.size() + (change.value ? change.value->size() : 0);
  return bytes;
}

Status check_key(const std::string& key) {
  if (!key.empty() && key.size() <= kKeyBytesMax) return {};
  return invalid_argument("a key of the store must have 1 to " + std::to_string(kKeyBytesMax) + " bytes", "store_key");
}

Status check_write(const Write& write) {
  for (const Change& change : write.changes) {
    TUFT_TRY(check_key(change.key));
    if (change.value && change.value->size() > kValueBytesMax) {
      return Error{ErrorCode::kPayloadTooLarge,
                   "a value exceeds " + std::to_string(kValueBytesMax) + " bytes and cannot be stored",
                   "store_value_size"};
    }
  }
  return {};
}

Operation operation_of(const Change& change) {
  return change.value ? Operation::kSet : Operation::kDelete;
}

// The store answered and refused the write. Successful reads do not contradict that.
bool is_refusal(const Status& status) {
  return !status.ok() && status.error().reason != "store_unreachable" && status.error().reason != "store_timeout";
}

class ThreadedStore final : public KeyValue {
 public:
  ThreadedStore(std::unique_ptr<Backend> backend, StoreIdentity identity, const QueueLimits& limits)
      : limits_(limits), backend_(std::move(backend)), telemetry_(std::move(identity)), thread_([this] { run(); }) {}

  ~ThreadedStore() override { ThreadedStore::close(kCloseBudget); }

  Status write(Write write, WriteDone done) override {
    TUFT_TRY(check_write(write));
    const size_t bytes = bytes_of(write);
    return enqueue({WriteRequest{std::move(write), std::move(done)}, system_clock().monotonic(), bytes});
  }

  Status get(std::string key, const telemetry::SpanContext& trace, GetDone done) override {
    TUFT_TRY(check_key(key));
    return enqueue({GetRequest{std::move(key), trace, std::move(done)}, system_clock().monotonic(), 0});
  }

  Status scan(Prefixes prefixes, const telemetry::SpanContext& trace, ScanDone done) override {
    std::sort(prefixes.begin(), prefixes.end());
    return enqueue({ScanRequest{std::move(prefixes), false, trace, std::move(done)}, system_clock().monotonic(), 0});
  }

  Status scan_keys(std::string prefix, const telemetry::SpanContext& trace, ScanDone done) override {
    return enqueue({ScanRequest{{std::move(prefix)}, true, trace, std::move(done)}, system_clock().monotonic(), 0});
  }

  Status health() const override {
    MutexLock lock(mutex_);
    return health_;
  }

  const std::string& name() const override { return telemetry_.identity().name; }

  void close(Nanos budget) override {
    bool hangs = false;
    {
      MutexLock lock(mutex_);
      closed_ = true;
      wake_up_.notify_all();
      const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(budget);
      while (!ended_ && !hangs) hangs = ended_changed_.wait_until(mutex_, end) == std::cv_status::timeout && !ended_;
      interrupted_ = hangs;
    }
    if (hangs) backend_->interrupt();
    if (thread_.joinable()) thread_.join();
  }

 private:
  Status enqueue(Request request) TUFT_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      if (closed_) return unavailable(name() + " is closed", "store_closed");
      // A write larger than the whole limit is accepted if the queue is empty.
      const bool full = queue_.size() >= limits_.operations_max ||
                        (queued_bytes_ > 0 && queued_bytes_ + request.bytes > limits_.bytes_max);
      if (full) {
        return Error{ErrorCode::kResourceExhausted,
                     "too many operations are queued for " + name() + "; try again later", "store_queue"};
      }
      const size_t bytes = request.bytes;
      queue_.push_back(std::move(request));  // before it is counted, because there may be no memory for it
      queued_bytes_ += bytes;
    }
    wake_up_.notify_one();
    return {};
  }

  // Returns writes that can be done together, or one read; an empty list if a probe is due; nothing when the store is
  // closed and the queue is empty.
  std::optional<std::vector<Request>> take_group() TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto probe_at = std::chrono::steady_clock::now() + kProbeInterval;
    std::vector<Request> group;
    while (queue_.empty()) {
      if (closed_) return std::nullopt;
      if (wake_up_.wait_until(mutex_, probe_at) == std::cv_status::timeout && queue_.empty() && !closed_) return group;
    }
    size_t bytes = 0;
    do {
      bytes += queue_.front().bytes;
      queued_bytes_ -= queue_.front().bytes;
      group.push_back(std::move(queue_.front()));
      queue_.pop_front();
    } while (!queue_.empty() && group.size() < kGroupWritesMax && bytes < kGroupBytesMax && is_write(group.back()) &&
             is_write(queue_.front()));
    return group;
  }

  static bool is_write(const Request& request) { return std::holds_alternative<WriteRequest>(request.what); }

  void run() {
    // A broken connection must be an error and not a SIGPIPE.
    sigset_t pipe;
    ::sigemptyset(&pipe);
    ::sigaddset(&pipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    while (std::optional<std::vector<Request>> group = take_group()) {
      if (is_interrupted()) {
        give_up(*group);
      } else if (group->empty()) {
        note_health(backend_->probe(), backend_->probe_writes() ? Operation::kSet : Operation::kGet);
      } else if (is_write(group->front())) {
        serve_writes(*group);
      } else if (auto* get = std::get_if<GetRequest>(&group->front().what)) {
        serve_read(*get, Operation::kGet, group->front().began, backend_->get(get->key));
      } else {
        auto& scan = std::get<ScanRequest>(group->front().what);
        serve_read(scan, Operation::kScan, group->front().began,
                   scan.keys_only ? backend_->scan_keys(scan.prefixes.front()) : backend_->scan(scan.prefixes));
      }
    }
    MutexLock lock(mutex_);
    ended_ = true;
    ended_changed_.notify_all();
  }

  bool is_interrupted() const TUFT_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return interrupted_;
  }

  void give_up(std::vector<Request>& group) {
    const Error error = unavailable(name() + " was closed before it answered", "store_closed");
    for (Request& request : group) std::visit([&](auto& what) { what.done(error); }, request.what);
  }

  template <typename ReadRequest, typename Value>
  void serve_read(ReadRequest& request, Operation operation, Nanos began, Result<Value> result) {
    const Nanos ended = system_clock().monotonic();
    const Status status = result.ok() ? Status() : Status(result.error());
    telemetry_.record(operation, request.trace, began, ended, status);
    telemetry_.warn_if_slow(operation, request.trace, began, ended);
    note_health(status, operation);
    request.done(std::move(result));
  }

  void serve_writes(std::vector<Request>& group) {
    std::vector<Write> writes;
    writes.reserve(group.size());
    for (Request& request : group) writes.push_back(std::move(std::get<WriteRequest>(request.what).write));
    const std::vector<Status> results = backend_->write(writes);
    const Nanos ended = system_clock().monotonic();
    note_health(results.back(), Operation::kSet);
    for (size_t i = 0; i < group.size(); ++i) {
      const Write& write = writes[i];
      std::optional<Operation> former;
      for (const Change& change : write.changes) {
        const Operation operation = operation_of(change);
        // A write of nobody's trace is the server's housekeeping and can be long: each kind is recorded once in a row.
        if (write.trace.valid() || operation != former) {
          telemetry_.record(operation, write.trace, group[i].began, ended, results[i]);
        }
        former = operation;
      }
      if (!write.changes.empty()) {
        telemetry_.warn_if_slow(operation_of(write.changes.front()), write.trace, group[i].began, ended);
      }
      std::get<WriteRequest>(group[i].what).done(results[i]);
    }
  }

  void note_health(const Status& status, Operation operation) TUFT_EXCLUDES(mutex_) {
    bool changed = false;
    {
      MutexLock lock(mutex_);
      if (interrupted_) return;  // close() made it fail, and not the store
      const bool is_write = operation == Operation::kSet;
      if (is_write) write_refused_ = is_refusal(status);
      if (status.ok() && write_refused_) return;
      changed = health_.ok() != status.ok();
      health_ = status;
    }
    if (!changed) return;
    if (status.ok()) {
      telemetry::log_info("store.recovered", name() + " works again",
                          {{"db.system.name", telemetry_.identity().system}});
    } else {
      telemetry::log_error("store.error", status.error().message,
                           {{"db.system.name", telemetry_.identity().system}, {"error.type", status.error().reason}});
    }
  }

  const QueueLimits limits_;
  const std::unique_ptr<Backend> backend_;  // confined to thread_
  const OperationTelemetry telemetry_;      // confined to thread_

  mutable Mutex mutex_;
  CondVar wake_up_;
  std::deque<Request> queue_ TUFT_GUARDED_BY(mutex_);
  size_t queued_bytes_ TUFT_GUARDED_BY(mutex_) = 0;
  bool closed_ TUFT_GUARDED_BY(mutex_) = false;
  Status health_ TUFT_GUARDED_BY(mutex_);
  bool write_refused_ TUFT_GUARDED_BY(mutex_) = false;  // the last one
  bool interrupted_ TUFT_GUARDED_BY(mutex_) = false;
  CondVar ended_changed_;
  bool ended_ TUFT_GUARDED_BY(mutex_) = false;  // the thread answers no more calls

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

Result<std::vector<Entry>> Backend::scan_keys(const std::string& prefix) {
  TUFT_ASSIGN(std::vector<Entry> entries, scan({prefix}));
  for (Entry& entry : entries) entry.value.clear();
  return entries;
}

std::unique_ptr<KeyValue> make_threaded_store(std::unique_ptr<Backend> backend, StoreIdentity identity,
                                              const QueueLimits& limits) {
  return std::make_unique<ThreadedStore>(std::move(backend), std::move(identity), limits);
}

}  // namespace tuft::store
