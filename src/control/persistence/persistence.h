// The records of the control plane in the persistent store, under TuFT's keys: what outlives the server.
//
// Writes are asynchronous and keep their order. A write stays in memory until the store has it: while the store is away
// nothing is lost, and everything is written again, in order, when it is back. Whoever promises something to a client
// waits until it is durable.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "config/config.h"
#include "control/persistence/custom_loss_records.h"
#include "control/persistence/records.h"
#include "control/persistence/usage_records.h"
#include "control/types/checkpoint.h"
#include "control/types/types.h"
#include "store/key_value.h"
#include "telemetry/context.h"

namespace tuft::control {

// All records that were found at the start.
struct StoredState {
  std::vector<SessionRecord> sessions;
  std::vector<RunRecord> runs;
  std::vector<SamplerRecord> samplers;
  std::vector<CustomLossRecord> custom_losses;
  std::vector<FutureRecord> futures;
  std::vector<UsageRecord> usage;
  std::vector<AuditRecord> audit;
  size_t unreadable = 0;  // records that were left out, with an ERROR in the log
};

// Thread-safe. It has more than 25 methods because put() and erase() have an overload for each kind of record.
class Persistence {
 public:
  // The limit of writes that are not durable yet. A user may have half of it; when all users together have more, a user
  // may have an equal part. Nothing limits what the server itself writes, which is little.
  static constexpr size_t kPendingBytesMax = size_t{256} << 20;

  // Keeps nothing: every write counts as durable at once.
  Persistence();
  // Closes the store; see close().
  ~Persistence();
  Persistence(const Persistence&) = delete;
  Persistence& operator=(const Persistence&) = delete;

  // Reads all records, and blocks until they are there. kFailedPrecondition if the store was made with another
  // configuration (it names the field, both values and the ways out) or by another program.
  static Result<std::unique_ptr<Persistence>> open(std::unique_ptr<store::KeyValue> store,
                                                   const config::ServerConfig& config);
  // Reads the records of another server, which leads, and writes nothing, whatever is asked: each write counts as
  // durable at once. Errors are those of open(), except that the namespace may be empty. A request of `stop` closes the
  // store, on the thread that makes it, so that reading ends soon with kUnavailable.
  static Result<std::unique_ptr<Persistence>> open_view(std::unique_ptr<store::KeyValue> store,
                                                        const config::ServerConfig& config,
                                                        const std::stop_token& stop = {});
  // Removes all records of the namespace and returns their number.
  static Result<size_t> clear(store::KeyValue& store, const std::string& name_space);

  bool enabled() const { return store_ != nullptr; }
  bool is_view() const { return is_view_; }
  // Requires: called once, after open().
  StoredState take_state() { return std::move(state_); }

  store::Change put(const SessionRecord& record) const;
  store::Change put(const RunRecord& record) const;
  store::Change put(const RunMetadataRecord& record) const;
  store::Change put(const SamplerRecord& record) const;
  store::Change put(const CustomLossRecord& record) const;
  // The record, and the result that lies apart from it.
  std::vector<store::Change> put(const FutureRecord& record) const;
  store::Change put(const Checkpoint& checkpoint) const;  // for TuFT's tools; the server reads metadata.json
  // The store removes these after `time_to_live`.
  store::Change put(const UsageRecord& record, Nanos time_to_live) const;
  store::Change put(const AuditRecord& record, Nanos time_to_live) const;
  store::Change erase(const SessionId& id) const;
  store::Change erase(const RunId& id) const;
  store::Change erase_metadata(const RunId& id) const;
  store::Change erase(const SamplerId& id) const;
  store::Change erase(const RequestId& id) const;
  store::Change erase_result(const RequestId& id) const;
  store::Change erase_custom_loss(const std::string& id) const;
  store::Change erase(const CheckpointPath& path) const;

  // Writes all changes or none. `done` is called when they and all earlier writes are durable, or when the store has
  // refused them for good. It is called on the store's thread or in sweep(), not inside write() (unless nothing is kept
  // at all), and not at all if the server ends first. So the caller may hold a lock that `done` takes: write under the
  // lock that orders the changes. `user` is the one whose operation it is; empty: the server itself.
  void write(const UserId& user, std::vector<store::Change> changes, const telemetry::SpanContext& trace,
             std::function<void()> done = {});

  // Reads a result in protobuf that lies apart from its record. Calls `done` once, perhaps before this returns: with
  // kGone if there is none, with kUnavailable if the store does not answer or is closed.
  void read_result(const RequestId& id, const telemetry::SpanContext& trace,
                   std::function<void(Result<std::string>)> done);

  // kUnavailable "store_unavailable" while the store is away: nothing new must be promised.
  Status available() const;
  // The same for a new operation of the user; also kResourceExhausted "store_behind" while too much of the user's waits
  // for the store (kPendingBytesMax).
  Status available(const UserId& user) const;
  // Calls `done` once: without an error when all writes until now are durable, with available()'s error when the store
  // is away. Perhaps before this returns.
  void when_durable(std::function<void(Status)> done);

  // Repeats writes that failed: the oldest about every second, and the rest once that one succeeded. While the store is
  // out of memory (store::kOutOfMemory), writes that only erase go ahead of it. Call it about every 250 ms.
  void sweep();
  // Waits for pending writes for at most `budget`, then closes the store. Must not be called from a `done`.
  void close(Nanos budget);

 private:
  // A write that is not known to be durable.
  struct Pending {
    enum class State : uint8_t { kWaiting, kSent, kWritten, kFailed };
    UserId user;
    store::Write write;
    std::function<void()> done;
    State state = State::kWaiting;
    bool makes_room = false;  // it only erases, and was not written ahead of its turn
    size_t bytes = 0;
  };
  using PendingPtr = std::shared_ptr<Pending>;
  struct Barrier {
    uint64_t after = 0;  // the number of writes that must be durable
    std::function<void(Status)> done;
  };

  Persistence(std::unique_ptr<store::KeyValue> store, const config::PersistenceConfig& config);
  Status load(const config::ServerConfig& config);
  Status load_view(const config::ServerConfig& config, const std::stop_token& stop);
  Status load_records(const std::stop_token& stop);
  struct RecordKind {
    std::string prefix;                            // of keys
    std::function<Status(std::string_view)> read;  // adds a record
  };
  template <typename Record>
  RecordKind kind_of(std::string_view kind, Result<Record> (*read)(std::string_view),
                     std::vector<Record>& records) const;

  std::string key(std::string_view kind, std::string_view id) const;
  // Returns false if the queue of the store is full, and `pending` waits.
  bool send_locked(const PendingPtr& pending) TUFT_REQUIRES(mutex_);
  void send_unsent_locked() TUFT_REQUIRES(mutex_);
  void on_written(const PendingPtr& pending, const Status& status);
  void note_failure_locked(const PendingPtr& pending, const Error& error) TUFT_REQUIRES(mutex_);
  std::vector<std::function<void()>> take_finished_locked() TUFT_REQUIRES(mutex_);
  void forget_bytes_locked(const Pending& pending) TUFT_REQUIRES(mutex_);
  void probe_locked() TUFT_REQUIRES(mutex_);
  void erase_ahead_locked(const PendingPtr& pending) TUFT_REQUIRES(mutex_);
  void go_on_locked() TUFT_REQUIRES(mutex_);

  std::unique_ptr<store::KeyValue> store_;  // null: nothing is kept
  const std::string prefix_;
  const std::optional<Nanos> future_ttl_;
  bool is_view_ = false;  // set before it is shared
  StoredState state_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<PendingPtr> pending_ TUFT_GUARDED_BY(mutex_);                    // in order
  size_t sent_ TUFT_GUARDED_BY(mutex_) = 0;                                   // of pending_, not answered
  size_t bytes_ TUFT_GUARDED_BY(mutex_) = 0;                                  // of pending_
  std::unordered_map<UserId, size_t> bytes_by_user_ TUFT_GUARDED_BY(mutex_);  // of pending_; no entry: nothing
  uint64_t durable_ TUFT_GUARDED_BY(mutex_) = 0;
  std::optional<Error> stalled_ TUFT_GUARDED_BY(mutex_);  // why the last one failed: the rest waits for sweep()
  PendingPtr probe_ TUFT_GUARDED_BY(mutex_);              // the write that tests whether the store is back
  int sweeps_until_probe_ TUFT_GUARDED_BY(mutex_) = 0;
  // The last ones of pending_, which the store did not get: it is away, or its queue was full. They are sent when sent_
  // has come down to send_at_.
  size_t unsent_ TUFT_GUARDED_BY(mutex_) = 0;
  size_t send_at_ TUFT_GUARDED_BY(mutex_) = SIZE_MAX;
  std::deque<Barrier> barriers_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::control
