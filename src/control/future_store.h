// The futures of all users: accepted operations, their results, and who waits for them.
//
// An operation ends once: the first outcome stays, whatever comes later (a cancel, then the worker's answer). What is
// persistent is decided in that order, too, and told to nobody before it is durable.
//
// Thread-safe; callbacks run outside the lock. The lock may be held while Persistence takes its own. A finished future
// stays for limits.future_retention_seconds; over limits.future_bytes_max the longest delivered go first, then the
// oldest of the rest. Evicted ids are remembered for a while (the newest kGoneMax of them), so that a late poll learns
// kGone and not kNotFound.
//
// No call walks through what others have, but for shut_down(): a future is found by its id, its key, and, while it is
// pending, by its session. The maps grow in small steps (steady_map.h).
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/byte_account.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "config/config.h"
#include "control/persistence.h"
#include "control/restore_plan.h"
#include "control/steady_map.h"
#include "control/types.h"
#include "telemetry/metrics.h"
#include "telemetry/trace.h"

namespace tuft::control {

class FutureStore;

// One accepted operation. The first group never changes; the rest belongs to the store and its lock.
class Future {
 public:
  RequestId request;
  UserId user;
  OperationType operation = OperationType::kForward;
  OperationKeys keys;
  uint64_t number = 0;             // counts all futures of this process, from 1
  telemetry::SpanContext context;  // of its span; the parent of what is done for it
  Nanos created = 0;
  Nanos created_wall = 0;

 private:
  friend class FutureStore;
  using Done = std::function<void(Result<FutureSnapshot>)>;

  std::string key_;
  telemetry::Span span_;
  Nanos sent_ = 0;     // to a worker; 0: not yet
  Nanos started_ = 0;  // a worker began; 0: not known
  Nanos decided_ = 0;  // its outcome is known, though perhaps not durable; 0: not yet
  bool claimed_ = false;
  bool is_servers_ = false;  // no client asked for it
  std::function<void()> stop_;
  int polls_ = 0;
  FutureSnapshot::State state_ = FutureSnapshot::State::kPending;
  std::shared_ptr<const FutureValue> value_;
  Error error_;
  std::vector<std::pair<uint64_t, Done>> waiters_;
  Nanos finished_ = 0;
  int64_t bytes_ = 0;
  std::list<Future*>::iterator in_pending_;  // in waiting_, then in running_
  std::list<std::shared_ptr<Future>>::iterator in_session_;
  std::list<std::shared_ptr<Future>>::iterator in_finished_;
  std::optional<std::list<Future*>::iterator> in_delivered_;
};
using FuturePtr = std::shared_ptr<Future>;

class FutureStore {
 public:
  static constexpr size_t kGoneMax = 65'536;

  // `tenant_label`: counts operations by user, too (telemetry.tenant_label).
  FutureStore(const config::Limits& limits, const Clock& clock, Persistence& persistence, bool tenant_label = false);
  ~FutureStore();

  struct Admission {
    FuturePtr future;
    bool is_new = false;
    ByteAccount::Hold memory;  // of a new one, for as long as the operation is in memory; empty where is_servers
  };
  struct Weight {
    int64_t payload_bytes = 0;
    // It waits for another of its run that has not come. Such may fill half of the user's memory only, so that there is
    // always room for the one that they wait for.
    bool waits_for_gap = false;
    bool is_servers = false;  // no client asked for it: beyond all limits
  };
  // What an operation takes beside its payload.
  static constexpr int64_t kOperationBytes = 1024;
  // A new pending future, or the one that was admitted under the same `key` before (an empty key never repeats).
  // kInvalidArgument when that was another operation, kResourceExhausted over limits.futures_per_user_max,
  // limits.samples_in_flight_per_user_max and limits.queued_bytes_per_user_max, kPayloadTooLarge where it alone is over
  // the last, kUnavailable after shut_down() and while the store is away. `keys` but for the request, which is made
  // here.
  Result<Admission> admit(const UserId& user, OperationKeys keys, std::string key, const telemetry::SpanContext& trace,
                          const Weight& weight);
  // The future admitted under `key`, if it is still known.
  FuturePtr find_by_key(const UserId& user, const std::string& key) const;

  // A worker gets it now. Only the first call counts.
  void mark_sent(Future& future);
  // The worker that has it says how long it kept it waiting before it began.
  void mark_started(Future& future, double queue_seconds);
  // Ends it and tells who waits, once the result is durable; `also` becomes durable with it, in any case. Nothing but
  // that where it has ended before (cancel(), shut_down()). With persistence nobody is called back inside this, so that
  // the caller may hold a lock that orders `also`.
  void complete(const FuturePtr& future, Result<FutureValue> result, std::vector<store::Change> also = {});

  // Its outcome is decided, so that doing it is no use.
  bool has_ended(const Future& future) const;
  // Its turn has come: from now on training is not cancelled any more. False: it has ended.
  bool claim(Future& future);
  // What cancel() calls, before anybody hears of it: lets go of what waits, or stops the worker that has it. At once
  // where it has ended already. The last one counts.
  void on_cancel(Future& future, std::function<void()> stop);
  // A pending operation fails with kCancelled, unless it is training that a worker has begun. Nothing where it has
  // ended. kNotFound, or kGone once evicted.
  Status cancel(const UserId& user, const RequestId& request);
  // The same for all of a session, oldest first; `why` is what they fail with.
  void cancel_session(const SessionId& session, const Error& why);

  // A sample without a future; each that was taken must be given back. What it holds is its memory, as in admit().
  Result<ByteAccount::Hold> take_sample(const UserId& user, int64_t payload_bytes);
  void give_back_sample(const UserId& user);
  // Memory of what will become an operation; see admit() for the errors.
  Result<ByteAccount::Hold> take_memory(const UserId& user, int64_t payload_bytes);
  // Which limit the user is at, in words; nothing: at none.
  std::optional<std::string> limit_reached(const UserId& user) const;

  // At the start: what a former life of the server had, oldest first.
  void restore(const RestorePlan& plan);

  // The session it belongs to goes to `session`; nothing where there is no such future.
  using WaitId = uint64_t;
  WaitId wait(const UserId& user, const RequestId& request, Future::Done done, SessionId* session = nullptr);
  void end_wait(WaitId wait);

  // Evicts what is over its time.
  void sweep();
  // Fails what is pending, which also ends every wait, and admits nothing more.
  void shut_down();

 private:
  using Waiters = std::vector<std::pair<uint64_t, Future::Done>>;

  FutureRecord record_of(const Future& future) const;
  Status check_limits_locked(const UserId& user, OperationType operation) const TUFT_REQUIRES(mutex_);
  void add_load_locked(const UserId& user, OperationType operation, int by) TUFT_REQUIRES(mutex_);
  bool is_at_sample_limit_locked(const UserId& user) const TUFT_REQUIRES(mutex_);
  Error over_sample_limit_locked(const UserId& user) const TUFT_REQUIRES(mutex_);
  Result<ByteAccount::Hold> take_memory_locked(const UserId& user, int64_t payload_bytes, bool waits_for_gap)
      TUFT_REQUIRES(mutex_);
  Result<FuturePtr> find_locked(const UserId& user, const RequestId& request) const TUFT_REQUIRES(mutex_);
  static bool can_cancel_locked(const Future& future);
  void settle_cancelled(const std::vector<FuturePtr>& futures, const Error& why);
  // What follows once it is decided.
  void settle(const FuturePtr& future, Result<FutureValue> result, std::vector<store::Change> also);
  void restore_locked(const FutureRecord& record) TUFT_REQUIRES(mutex_);
  void finish(const FuturePtr& future, Result<FutureValue> result);
  void forget_locked(const RequestId& request, const UserId& user, std::shared_ptr<const Error> why)
      TUFT_REQUIRES(mutex_);
  static FutureSnapshot snapshot_locked(const FuturePtr& future);
  void finish_locked(const FuturePtr& future, Result<FutureValue> result) TUFT_REQUIRES(mutex_);
  void leave_session_locked(Future& future) TUFT_REQUIRES(mutex_);
  void free_key_locked(Future& future) TUFT_REQUIRES(mutex_);
  void mark_delivered_locked(Future& future) TUFT_REQUIRES(mutex_);
  // Adds to `unread` what no client has fetched.
  void evict_locked(Future& future, std::string_view reason, std::vector<FuturePtr>& unread) TUFT_REQUIRES(mutex_);
  void evict_over_budget_locked(std::vector<FuturePtr>& unread) TUFT_REQUIRES(mutex_);
  void bind_instruments();
  void observe_states();

  // future_records.cc
  void record_end(Future& future, telemetry::Span span, const Error* error) const;
  void record_times(const Future& future, telemetry::Span& span) const;
  void record_delivery_locked(const Future& future) TUFT_REQUIRES(mutex_);
  static void log_end(const Future& future, const Error* error);
  static void log_evicted(const std::vector<FuturePtr>& unread);

  const config::Limits limits_;
  const Clock& clock_;
  Persistence& persistence_;
  const bool tenant_label_;
  const std::shared_ptr<ByteAccount> memory_ = std::make_shared<ByteAccount>();  // of operations, by user

  mutable Mutex mutex_;
  bool shut_down_ TUFT_GUARDED_BY(mutex_) = false;
  uint64_t next_number_ TUFT_GUARDED_BY(mutex_) = 1;
  uint64_t next_wait_ TUFT_GUARDED_BY(mutex_) = 1;
  int64_t bytes_ TUFT_GUARDED_BY(mutex_) = 0;  // of finished futures
  SteadyMap<RequestId, FuturePtr> by_request_ TUFT_GUARDED_BY(mutex_);
  SteadyMap<std::string, FuturePtr> by_key_ TUFT_GUARDED_BY(mutex_);
  // The pending ones, oldest first.
  std::unordered_map<SessionId, std::list<FuturePtr>> by_session_ TUFT_GUARDED_BY(mutex_);
  struct Load {
    int pending = 0;
    int samples = 0;              // futures and others
    bool is_memory_full = false;  // the newest operation found no room
  };
  std::unordered_map<UserId, Load> load_by_user_ TUFT_GUARDED_BY(mutex_);
  std::unordered_map<WaitId, FuturePtr> waits_ TUFT_GUARDED_BY(mutex_);
  std::list<Future*> waiting_ TUFT_GUARDED_BY(mutex_);     // for a worker, oldest first
  std::list<Future*> running_ TUFT_GUARDED_BY(mutex_);     // longest at a worker first
  std::list<FuturePtr> finished_ TUFT_GUARDED_BY(mutex_);  // oldest first
  std::list<Future*> delivered_ TUFT_GUARDED_BY(mutex_);   // longest delivered first
  struct Gone {
    UserId user;
    std::shared_ptr<const Error> why;  // null: evicted
  };
  SteadyMap<RequestId, Gone> gone_ TUFT_GUARDED_BY(mutex_);
  std::deque<RequestId> gone_order_ TUFT_GUARDED_BY(mutex_);

  struct Counts {
    int64_t queued = 0;
    int64_t running = 0;  // a worker has it
    int64_t unread = 0;
  };
  std::array<Counts, kOperationTypes> counts_ TUFT_GUARDED_BY(mutex_);  // by OperationType

  struct Instruments {
    telemetry::BoundCounter created, ready, failed_user, failed_server;
    telemetry::BoundHistogram wait, execution, polls, delay;
  };
  std::array<Instruments, kOperationTypes> instruments_;  // by OperationType
  telemetry::BoundCounter queue_length_;
};

}  // namespace tuft::control
