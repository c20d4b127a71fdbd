// What of the control plane outlives the server: its records in the persistent store, under TuFT's keys.
//
// Records are written behind the calls that change things, in their order, and kept here until the store has them:
// when the store is away, nothing is lost, and everything is written again, in order, when it is back. Whoever promised
// something to a client waits with the promise until it is durable.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "config/config.h"
#include "control/checkpoint.h"
#include "control/records.h"
#include "control/usage_records.h"
#include "store/key_value.h"
#include "telemetry/context.h"

namespace tuft::control {

// Everything that was found at the start.
struct StoredState {
  std::vector<SessionRecord> sessions;
  std::vector<RunRecord> runs;
  std::vector<SamplerRecord> samplers;
  std::vector<FutureRecord> futures;
  std::vector<UsageRecord> usage;
  std::vector<AuditRecord> audit;
  size_t unreadable = 0;  // records that were left out, with an ERROR in the log
};

// Thread-safe.
class Persistence {
 public:
  // Of writes that are not durable yet; over it nothing new is promised.
  static constexpr size_t kPendingBytesMax = size_t{256} << 20;

  // Keeps nothing; every promise is as good as its word.
  Persistence();
  // Closes: see there.
  ~Persistence();
  Persistence(const Persistence&) = delete;
  Persistence& operator=(const Persistence&) = delete;

  // Reads what is there, for a start: blocks. Refuses a store that was made with another configuration
  // (kFailedPrecondition naming the field, both values and the ways out) or by another program.
  static Result<std::unique_ptr<Persistence>> open(std::unique_ptr<store::KeyValue> store,
                                                   const config::ServerConfig& config);
  // Removes everything of the namespace; the number of records.
  static Result<size_t> clear(store::KeyValue& store, const std::string& name_space);

  bool enabled() const { return store_ != nullptr; }
  // Once, after open().
  StoredState take_state() { return std::move(state_); }

  store::Change put(const SessionRecord& record) const;
  store::Change put(const RunRecord& record) const;
  store::Change put(const SamplerRecord& record) const;
  store::Change put(const FutureRecord& record) const;
  store::Change put(const Checkpoint& checkpoint) const;  // for TuFT's tools; ours is metadata.json
  // These go by themselves.
  store::Change put(const UsageRecord& record, Nanos time_to_live) const;
  store::Change put(const AuditRecord& record, Nanos time_to_live) const;
  store::Change erase(const SessionId& id) const;
  store::Change erase(const RunId& id) const;
  store::Change erase(const SamplerId& id) const;
  store::Change erase(const RequestId& id) const;
  store::Change erase(const CheckpointPath& path) const;

  // All of it or nothing. `done` is called when it and everything before it is durable, or given up because the store
  // refuses it for good: on the store's thread or in sweep(), never inside this call unless nothing is kept at all, and
  // never where the server ends first. So a lock may be held that a `done` takes: what must become durable in an order
  // is written under the lock that gives the order.
  void write(std::vector<store::Change> changes, const telemetry::SpanContext& trace, std::function<void()> done = {});

  // An error where the store is away, or too much waits for it: nothing new is to be promised. kUnavailable
  // "store_unavailable".
  Status available() const;
  // Calls `done` once, when everything written until now is durable, or with available()'s error when it is known that
  // that will take a while. Perhaps before this returns.
  void when_durable(std::function<void(Status)> done);

  // Writes again what could not be written: the oldest of it about every second, and the rest once that went through.
  // Call it about every 250 ms.
  void sweep();
  // Waits for what is not durable yet, `budget` at most, and ends. Not from a `done`.
  void close(Nanos budget);

 private:
  // A write that is not known to be durable.
  struct Pending {
    enum class State : uint8_t { kWaiting, kSent, kWritten, kFailed };
    store::Write write;
    std::function<void()> done;
    State state = State::kWaiting;
    size_t bytes = 0;
  };
  using PendingPtr = std::shared_ptr<Pending>;
  struct Barrier {
    uint64_t after = 0;  // of so many writes
    std::function<void(Status)> done;
  };

  Persistence(std::unique_ptr<store::KeyValue> store, const config::PersistenceConfig& config);
  Status load(const config::ServerConfig& config);
  Status load_records();
  template <typename Record>
  Status load_kind(std::string_view kind, Result<Record> (*read)(std::string_view), std::vector<Record>& records,
                   const telemetry::SpanContext& trace);

  std::string key(std::string_view kind, std::string_view id) const;
  void send_locked(const PendingPtr& pending) TUFT_REQUIRES(mutex_);
  void on_written(const PendingPtr& pending, const Status& status);
  void note_failure_locked(const PendingPtr& pending, const Error& error) TUFT_REQUIRES(mutex_);
  std::vector<std::function<void()>> take_finished_locked() TUFT_REQUIRES(mutex_);
  void probe_locked() TUFT_REQUIRES(mutex_);
  void go_on_locked() TUFT_REQUIRES(mutex_);

  std::unique_ptr<store::KeyValue> store_;  // null: nothing is kept
  const std::string prefix_;
  const std::optional<Nanos> future_ttl_;
  StoredState state_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<PendingPtr> pending_ TUFT_GUARDED_BY(mutex_);  // in order
  size_t sent_ TUFT_GUARDED_BY(mutex_) = 0;                 // of them, not answered
  size_t bytes_ TUFT_GUARDED_BY(mutex_) = 0;                // of them
  uint64_t accepted_ TUFT_GUARDED_BY(mutex_) = 0;
  uint64_t durable_ TUFT_GUARDED_BY(mutex_) = 0;
  std::optional<Error> stalled_ TUFT_GUARDED_BY(mutex_);  // a write failed: the rest waits for sweep()
  PendingPtr probe_ TUFT_GUARDED_BY(mutex_);              // that tells whether the store takes writes again
  int sweeps_until_probe_ TUFT_GUARDED_BY(mutex_) = 0;
  std::deque<Barrier> barriers_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::control
