// The futures of all users: accepted operations, their results, and who waits for them.
//
// An operation ends once: the first outcome stays, whatever comes later (a cancel, then the worker's answer). With
// persistence the outcome becomes durable in that order, and nobody learns it before it is durable.
//
// A finished future is kept for limits.future_retention_seconds, or until limits.future_bytes_max is exceeded and its
// user holds the most, or limits.future_bytes_per_user_max (finished_futures.h). With persistence the store keeps it as
// long, and no longer.
//
// After a restart a result in protobuf stays in the store until a client asks for it. It is read once; polls that come
// meanwhile wait for the same read, and all end with it, whether it succeeds or fails.
//
// No call but shut_down() walks through the futures of others: a future is found by its id, by its key and, while it is
// pending, by its session. The maps grow in small steps (sharded_map.h). What has to be evicted at once goes in pieces,
// so that nobody waits long for the lock, or for the store.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/byte_account.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/sharded_map.h"
#include "config/config.h"
#include "control/futures/finished_futures.h"
#include "control/futures/future.h"
#include "control/futures/future_telemetry.h"
#include "control/futures/operation_activity.h"
#include "control/futures/operation_budget.h"
#include "control/futures/pending_futures.h"
#include "control/futures/sample_feeds.h"
#include "control/persistence/persistence.h"
#include "control/persistence/restore_plan.h"
#include "control/types/types.h"

namespace tuft::control {

// It has more than 25 methods: a short one for each step in the life of a future.
//
// Thread-safe. Callbacks are called without the lock. The lock may be held while Persistence and OperationBudget take
// theirs.
class FutureStore {
 public:
  // `tenant_label`: counts operations by user, too (telemetry.tenant_label).
  FutureStore(const config::Limits& limits, const Clock& clock, Persistence& persistence, OperationBudget& budget,
              bool tenant_label = false);

  // Tells how an operation waits that no worker has, for metrics and spans. To be set before the first operation. It is
  // called without a lock held.
  using QueueStateOf = std::function<QueueState(const Future&)>;
  void set_queue_state_of(QueueStateOf state_of) { queue_state_of_ = std::move(state_of); }

  struct Admission {
    FuturePtr future;
    bool is_new = false;
    ByteAccount::Hold memory;  // of a new operation, to be kept as long as it is in memory; empty where is_servers
  };
  using Weight = OperationBudget::Weight;
  static constexpr int64_t kOperationBytes = OperationBudget::kOperationBytes;
  // Returns a new pending future, or the one that was admitted under the same `key` before (an empty key never
  // repeats). `keys` is complete but for the request id, which is made here. kInvalidArgument if the other one was
  // another kind of operation, kUnavailable after shut_down() and while the store is away, and the errors of
  // OperationBudget::begin().
  Result<Admission> admit(const UserId& user, OperationKeys keys, std::string key, const telemetry::SpanContext& trace,
                          const Weight& weight);
  // Returns the user's future that was admitted under `key`; null if it is not known any more.
  FuturePtr find_by_key(const UserId& user, const std::string& key) const;

  // A worker gets the operation now. Only the first call counts.
  void mark_sent(Future& future);
  // The worker says how long it kept the operation waiting before it began.
  void mark_started(Future& future, double queue_seconds);
  // Ends the operation and tells those who wait, once the result is durable. If it has ended before (cancel(),
  // shut_down()), the result is ignored. `also` becomes durable with the result, or alone. With persistence nobody is
  // called back before this returns, so the caller may hold a lock that orders `also`.
  void complete(const FuturePtr& future, Result<FutureValue> result, std::vector<store::Change> also = {});

  // Returns true once the outcome is decided, so that executing the operation is of no use.
  bool has_ended(const Future& future) const;
  // The operation's turn has come: from now on training cannot be cancelled. Returns false if it has ended.
  bool claim(Future& future);
  // cancel() calls `stop` before anybody learns of the end: it frees what waits, or stops the worker. Called at once if
  // the operation has ended already. Only the newest `stop` counts.
  void on_cancel(Future& future, std::function<void()> stop);
  // Fails a pending operation with kCancelled, unless it is training that a worker has begun. Does nothing if it has
  // ended. kNotFound, or kGone once evicted.
  Status cancel(const UserId& user, const RequestId& request);
  // Cancels all operations of a session, oldest first; they fail with `why`.
  void cancel_session(const SessionId& session, const Error& why);
  // The same for the session's samples alone. Returns their number.
  size_t cancel_samples(const SessionId& session, const Error& why);

  // What a user has not finished, and what a session did with its time in this server's life, until it ends.
  UnfinishedWork unfinished_of(const UserId& user) const;
  SessionActivity activity_of(const SessionId& session) const;

  // What gauges show: the bytes of finished results, the ages of the oldest operation that is queued and of the oldest
  // that is running (0: there is none), and the numbers of futures of an operation.
  int64_t kept_bytes() const;
  std::pair<Nanos, Nanos> oldest_ages() const;
  const FutureTelemetry::Counts& counts(OperationType operation) const { return telemetry_.counts(operation); }
  // Counts those that wait under what they wait for now, in tuft.futures.queue_length.
  void count_queue_states() TUFT_EXCLUDES(mutex_);

  // At the start: takes the futures of a former server process out of the plan, oldest first.
  void restore(RestorePlan& plan);

  // Takes in an operation of a former server process that has not finished. Returns null if its request or its key is
  // known already. A record that is not stored yet is stored with its outcome.
  FuturePtr take_in(const FutureRecord& record);
  // A run goes back to a checkpoint, and these operations of it came after that: their numbers are free. Clients who
  // ask for the result of one that is undone get the error of its record; what had failed before stays failed. Those
  // that are pending still have to be failed.
  void undo(const std::vector<FutureRecord>& records);

  // Calls `done` once, when the future has finished or end_wait() is called, or at once with kNotFound or kGone.
  // kUnavailable if the result has to be read and the store fails; the next call reads again. Sets `session` to the
  // future's session if there is such a future.
  using WaitId = uint64_t;
  WaitId wait(const UserId& user, const RequestId& request, Future::Done done, SessionId* session = nullptr);
  void end_wait(WaitId wait);

  // Confirms the completions of a feed up to `after`. Calls `done` once with those that follow: at once if there are
  // some or if `waits` is false, else with the next completion or when end_watch() is called. Requires: the caller has
  // checked that the sampling session is the user's.
  WaitId watch(const SampleFeed& feed, int64_t after, bool waits, SampleFeeds::Done done);
  void end_watch(const SampleFeed& feed, WaitId watch);

  // Evicts what is kept for too long.
  void sweep();
  // Fails what is pending, which also ends every wait. Nothing is admitted after it.
  void shut_down();

 private:
  using Waiters = std::vector<std::pair<uint64_t, Future::Done>>;
  using Told = std::vector<std::pair<SampleFeeds::Done, SampleNews>>;

  // Work that remains, without the lock, after futures were evicted.
  struct Evicted {
    std::vector<FuturePtr> unread;  // no client has fetched them
    std::vector<store::Change> erased;
  };

  size_t cancel_some(const SessionId& session, const Error& why, bool only_samples);
  void count_queue_state(Future& future) TUFT_EXCLUDES(mutex_);
  Result<FuturePtr> find_locked(const UserId& user, const RequestId& request) const TUFT_REQUIRES(mutex_);
  void settle_cancelled(const std::vector<FuturePtr>& futures, const Error& why);
  // Stores the outcome once it is decided, and ends the waits.
  void settle(const FuturePtr& future, Result<FutureValue> result, std::vector<store::Change> also);
  // Writes what was to become durable with an outcome that is not stored.
  void write_alone(const Future& future, std::vector<store::Change> also);
  void finish(const FuturePtr& future, Result<FutureValue> result);
  // Returns those who wait for news of the feed.
  Told finish_locked(const FuturePtr& future, Result<FutureValue> result) TUFT_REQUIRES(mutex_);
  void read(const FuturePtr& future);
  void on_read(const FuturePtr& future, Result<std::string> bytes);
  // Takes those who wait for the future.
  Waiters take_waiters_locked(Future& future) TUFT_REQUIRES(mutex_);
  static FutureSnapshot snapshot_locked(const FuturePtr& future);
  // Returns what clients get: the snapshot, or the error itself where a restart has ended the operation (kGone), as
  // after the next restart.
  static Result<FutureSnapshot> outcome_of(FutureSnapshot snapshot);
  void deliver_locked(Future& future) TUFT_REQUIRES(mutex_);
  // Returns a future with what the record says of its operation, and takes that out of the record.
  FuturePtr future_of(FutureRecord& record) const;
  void restore_locked(FutureRecord& record) TUFT_REQUIRES(mutex_);
  void store_settled(const FutureRecord& record);  // what a restart made of it
  // Makes a pending future known, and begins its span below `trace`.
  void begin_locked(const FuturePtr& future, const telemetry::SpanContext& trace) TUFT_REQUIRES(mutex_);
  void evict_over_budget() TUFT_EXCLUDES(mutex_);
  // Evicts some. Returns false if no more have to go.
  bool evict_some_locked(Evicted& evicted) TUFT_REQUIRES(mutex_);
  void forget_locked(const FuturePtr& future, std::string_view reason, Evicted& evicted) TUFT_REQUIRES(mutex_);
  void finish_evicting(Evicted evicted);

  const config::Limits limits_;
  const Clock& clock_;
  Persistence& persistence_;
  OperationBudget& budget_;
  FutureTelemetry telemetry_;

  mutable Mutex mutex_;
  bool shut_down_ TUFT_GUARDED_BY(mutex_) = false;
  uint64_t next_number_ TUFT_GUARDED_BY(mutex_) = 1;
  uint64_t next_wait_ TUFT_GUARDED_BY(mutex_) = 1;
  ShardedMap<RequestId, FuturePtr> by_request_ TUFT_GUARDED_BY(mutex_);
  ShardedMap<std::string, FuturePtr> by_key_ TUFT_GUARDED_BY(mutex_);
  std::unordered_map<WaitId, FuturePtr> waits_ TUFT_GUARDED_BY(mutex_);
  PendingFutures pending_ TUFT_GUARDED_BY(mutex_);
  OperationActivity activity_ TUFT_GUARDED_BY(mutex_);
  QueueStateOf queue_state_of_;
  FinishedFutures finished_ TUFT_GUARDED_BY(mutex_);
  SampleFeeds feeds_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::control
