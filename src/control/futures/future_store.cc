#include "control/futures/future_store.h"

#include <utility>

#include "control/types/checkpoint.h"  // iso_time
#include "control/types/errors.h"

namespace tuft::control {
namespace {

constexpr auto kStoredResultBytesMax = static_cast<int64_t>(store::kValueBytesMax);

FutureRecord record_of(const Future& future, std::string key) {
  FutureRecord record;
  record.request = future.request;
  record.user = future.user;
  record.keys = future.keys;
  record.key = std::move(key);
  record.number = future.number;
  record.created_at = iso_time(future.created_wall);
  return record;
}

}  // namespace

FutureStore::FutureStore(const config::Limits& limits, const Clock& clock, Persistence& persistence,
                         OperationBudget& budget, bool tenant_label)
    : limits_(limits), clock_(clock), persistence_(persistence), budget_(budget), telemetry_(tenant_label) {}

int64_t FutureStore::kept_bytes() const {
  MutexLock lock(mutex_);
  return finished_.bytes();
}

std::pair<Nanos, Nanos> FutureStore::oldest_ages() const {
  const Nanos now = clock_.monotonic();
  MutexLock lock(mutex_);
  const Future* const queued = pending_.oldest_waiting();
  const Future* const running = pending_.oldest_running();
  return {queued == nullptr ? 0 : now - queued->created, running == nullptr ? 0 : now - running->created};
}

void FutureStore::count_queue_state(Future& future) {
  if (!queue_state_of_) return;
  const QueueState state = queue_state_of_(future);
  MutexLock lock(mutex_);
  if (future.sent_ == 0 && future.state_ == FutureSnapshot::State::kPending) telemetry_.count_as(future, state);
}

void FutureStore::count_queue_states() {
  std::vector<FuturePtr> waiting;
  {
    MutexLock lock(mutex_);
    waiting = pending_.waiting();
  }
  for (const FuturePtr& future : waiting) count_queue_state(*future);
}

Result<FutureStore::Admission> FutureStore::admit(const UserId& user, OperationKeys keys, std::string key,
                                                  const telemetry::SpanContext& trace, const Weight& weight) {
  const OperationType operation = keys.operation;
  auto future = std::make_shared<Future>();
  future->request = RequestId(random_uuid());
  future->user = user;
  future->operation = operation;
  future->keys = std::move(keys);
  future->keys.request = future->request;
  future->created = clock_.monotonic();
  future->created_wall = clock_.wall();
  future->key_ = std::move(key);
  future->is_servers_ = weight.is_servers;
  ByteAccount::Hold memory;
  {
    MutexLock lock(mutex_);
    if (!future->key_.empty()) {
      if (const FuturePtr* known = by_key_.find(future->key_); known != nullptr) {
        if ((*known)->operation != operation) {
          return invalid_argument("this number was used by " + std::string(operation_name((*known)->operation)) +
                                      " and cannot be used again by " + std::string(operation_name(operation)),
                                  "repeated_key_mismatch");
        }
        return Admission{*known, false, {}};
      }
    }
    if (shut_down_) return shutting_down();
    TUFT_TRY(persistence_.available(user));
    TUFT_ASSIGN(memory, budget_.begin(user, operation, weight));
    future->number = next_number_++;
    begin_locked(future, trace);
    // Written under the lock, so that the answer to a repetition waits for this write, too.
    if (persistence_.enabled()) {
      telemetry::SpanContext stored_by = trace;
      stored_by.keys = future->context.keys;
      persistence_.write(user, persistence_.put(record_of(*future, future->key_)), stored_by);
    }
  }
  telemetry_.on_accepted(*future);
  count_queue_state(*future);
  return Admission{std::move(future), true, std::move(memory)};
}

// The span begins under the lock, so that a thread that finds the future by its key finds its span too.
void FutureStore::begin_locked(const FuturePtr& future, const telemetry::SpanContext& trace) {
  by_request_.emplace(future->request, future);
  if (!future->key_.empty()) by_key_.emplace(future->key_, future);
  FutureTelemetry::begin(*future, trace);
  pending_.add(future);
  activity_.add(*future, future->created, !future->is_servers_);
  feeds_.began(*future);
  ++telemetry_.counts(future->operation).queued;
}

Result<FuturePtr> FutureStore::find_locked(const UserId& user, const RequestId& request) const {
  const FuturePtr* found = by_request_.find(request);
  if (found != nullptr && (*found)->user == user) return *found;
  return finished_.why_gone(user, request);
}

FuturePtr FutureStore::find_by_key(const UserId& user, const std::string& key) const {
  MutexLock lock(mutex_);
  const FuturePtr* found = by_key_.find(key);
  return found == nullptr || (*found)->user != user ? nullptr : *found;
}

void FutureStore::mark_sent(Future& future) {
  {
    MutexLock lock(mutex_);
    if (future.sent_ != 0 || future.state_ != FutureSnapshot::State::kPending) return;
    future.sent_ = clock_.monotonic();
    future.waited_in_ = future.queue_state_;
    telemetry_.count_as(future, QueueState::kActive);
    pending_.move_to_worker(future);
    activity_.move_to_worker(future);
    FutureTelemetry::Counts& counts = telemetry_.counts(future.operation);
    --counts.queued;
    ++counts.running;
  }
  FutureTelemetry::on_sent(future);
}

void FutureStore::mark_started(Future& future, double queue_seconds) {
  const Nanos now = clock_.monotonic();
  MutexLock lock(mutex_);
  if (future.sent_ == 0 || future.started_ != 0 || future.state_ != FutureSnapshot::State::kPending) return;
  const Nanos longest = now - future.sent_;
  const bool sensible = queue_seconds > 0 && queue_seconds < to_seconds(longest);
  future.started_ = future.sent_ + (sensible ? static_cast<Nanos>(queue_seconds * kSecond) : 0);
}

Result<FutureSnapshot> FutureStore::outcome_of(FutureSnapshot snapshot) {
  const bool is_gone = snapshot.state == FutureSnapshot::State::kFailed && snapshot.error.code == ErrorCode::kGone;
  if (is_gone) return std::move(snapshot.error);
  return snapshot;
}

FutureSnapshot FutureStore::snapshot_locked(const FuturePtr& future) {
  FutureSnapshot snapshot;
  // A result that is not here yet is none.
  const bool is_unread = future->is_unread_from_store();
  snapshot.state = is_unread ? FutureSnapshot::State::kPending : future->state_;
  snapshot.request = future->request;
  snapshot.operation = future->operation;
  snapshot.value = future->value_;
  snapshot.error = future->error_;
  snapshot.span = future->context;
  snapshot.created_monotonic = future->created;
  snapshot.keys = OperationKeysPtr(future, &future->keys);
  snapshot.at_worker = future->sent_ != 0 || is_unread;
  return snapshot;
}

FutureStore::Told FutureStore::finish_locked(const FuturePtr& future, Result<FutureValue> result) {
  future->finished_ = clock_.monotonic();
  if (future->decided_ == 0) future->decided_ = future->finished_;
  if (future->started_ == 0)
    future->started_ = future->sent_;  // it failed at the worker, which did not say when it began
  future->stop_ = nullptr;
  if (result.ok()) {
    future->state_ = FutureSnapshot::State::kReady;
    future->result_bytes_ = bytes_of(*result);
    future->value_ = std::make_shared<const FutureValue>(std::move(*result));
  } else {
    future->state_ = FutureSnapshot::State::kFailed;
    future->error_ = std::move(result).error();
  }
  pending_.remove(*future);
  activity_.remove(*future, future->finished_, future->sent_ == 0, !future->is_servers_);
  FutureTelemetry::Counts& counts = telemetry_.counts(future->operation);
  --(future->sent_ == 0 ? counts.queued : counts.running);
  ++counts.unread;
  budget_.end(future->user, future->operation);
  finished_.add(future);
  if (!future->waiters_.empty()) deliver_locked(*future);
  return feeds_.finished(*future, clock_.wall());
}

FutureStore::Waiters FutureStore::take_waiters_locked(Future& future) {
  Waiters waiters;
  waiters.swap(future.waiters_);
  for (const auto& waiter : waiters) waits_.erase(waiter.first);
  return waiters;
}

void FutureStore::deliver_locked(Future& future) {
  if (!finished_.deliver(future)) return;
  telemetry_.on_delivered(future, clock_.monotonic());
  --telemetry_.counts(future.operation).unread;
}

bool FutureStore::has_ended(const Future& future) const {
  MutexLock lock(mutex_);
  return future.decided_ != 0;
}

bool FutureStore::claim(Future& future) {
  MutexLock lock(mutex_);
  future.claimed_ = future.decided_ == 0;
  return future.claimed_;
}

void FutureStore::complete(const FuturePtr& future, Result<FutureValue> result, std::vector<store::Change> also) {
  bool first = false;
  {
    MutexLock lock(mutex_);
    first = future->decided_ == 0;
    if (first) future->decided_ = clock_.monotonic();
    // An operation without a seq_id is repeated under the same key: a failed unload_model must not fail for ever.
    if (first && !result.ok() && !future->keys.seq_id && future->operation == OperationType::kUnloadModel) {
      by_key_.erase(future->key_);
      future->key_.clear();
    }
  }
  if (first) return settle(future, std::move(result), std::move(also));
  write_alone(*future, std::move(also));
}

void FutureStore::write_alone(const Future& future, std::vector<store::Change> also) {
  if (!also.empty() && persistence_.enabled()) persistence_.write(future.user, std::move(also), future.context);
}

void FutureStore::settle(const FuturePtr& future, Result<FutureValue> result, std::vector<store::Change> also) {
  bool durable = persistence_.enabled();
  if (durable) {
    MutexLock lock(mutex_);
    durable = !shut_down_;
  }
  if (!durable) {
    write_alone(*future, std::move(also));
    return finish(future, std::move(result));
  }
  const auto outcome = std::make_shared<Result<FutureValue>>(std::move(result));
  FutureRecord record = record_of(*future, future->key_);
  record.state = FutureSnapshot::State::kFailed;
  bool lies_apart = false;
  if (!outcome->ok()) {
    record.error = outcome->error();
  } else if (bytes_of(outcome->value()) > kStoredResultBytesMax) {
    // This process keeps the result; the next one reports why it is missing.
    record.error = Error{ErrorCode::kGone,
                         "the server was restarted, and this result was too large to be kept over that (over " +
                             std::to_string(kStoredResultBytesMax) + " bytes)",
                         "result_too_large"};
  } else {
    record.state = FutureSnapshot::State::kReady;
    record.value = std::shared_ptr<const FutureValue>(outcome, &outcome->value());
    lies_apart = std::holds_alternative<ProtobufResult>(outcome->value());
  }
  for (store::Change& change : persistence_.put(record)) also.push_back(std::move(change));
  persistence_.write(future->user, std::move(also), future->context, [this, future, outcome, lies_apart] {
    {
      MutexLock lock(mutex_);
      future->lies_apart_ = lies_apart;
    }
    finish(future, std::move(*outcome));
  });
}

void FutureStore::finish(const FuturePtr& future, Result<FutureValue> result) {
  Waiters waiters;
  FutureSnapshot snapshot;
  telemetry::Span span;
  Told told;
  {
    MutexLock lock(mutex_);
    if (future->state_ != FutureSnapshot::State::kPending) return;
    told = finish_locked(future, std::move(result));
    waiters = take_waiters_locked(*future);
    snapshot = snapshot_locked(future);
    span = std::move(future->span_);
  }
  evict_over_budget();
  telemetry_.on_end(*future, std::move(span),
                    snapshot.state == FutureSnapshot::State::kFailed ? &snapshot.error : nullptr);
  const Result<FutureSnapshot> outcome = outcome_of(std::move(snapshot));
  for (auto& waiter : waiters) waiter.second(outcome);
  for (auto& [done, news] : told) done(std::move(news));
}

void FutureStore::on_cancel(Future& future, std::function<void()> stop) {
  {
    MutexLock lock(mutex_);
    if (future.decided_ == 0) {
      future.stop_ = std::move(stop);
      return;
    }
  }
  stop();
}

Status FutureStore::cancel(const UserId& user, const RequestId& request) {
  std::vector<FuturePtr> found;
  {
    MutexLock lock(mutex_);
    TUFT_ASSIGN(const FuturePtr future, find_locked(user, request));
    if (!future->can_cancel()) return {};
    future->decided_ = clock_.monotonic();
    found.push_back(future);
  }
  settle_cancelled(found, Error{ErrorCode::kCancelled, "cancelled by the client", "cancelled"});
  return {};
}

void FutureStore::cancel_session(const SessionId& session, const Error& why) {
  (void)cancel_some(session, why, false);
  MutexLock lock(mutex_);
  activity_.forget(session);
}

UnfinishedWork FutureStore::unfinished_of(const UserId& user) const {
  MutexLock lock(mutex_);
  return activity_.of_user(user);
}

SessionActivity FutureStore::activity_of(const SessionId& session) const {
  const Nanos now = clock_.monotonic();
  MutexLock lock(mutex_);
  return activity_.of_session(session, now);
}

size_t FutureStore::cancel_samples(const SessionId& session, const Error& why) {
  return cancel_some(session, why, true);
}

size_t FutureStore::cancel_some(const SessionId& session, const Error& why, bool only_samples) {
  std::vector<FuturePtr> found;
  {
    MutexLock lock(mutex_);
    for (const FuturePtr& future : pending_.of_session(session)) {
      if (future->is_servers_ || !future->can_cancel()) continue;
      if (only_samples && future->operation != OperationType::kSample) continue;
      future->decided_ = clock_.monotonic();
      found.push_back(future);
    }
  }
  settle_cancelled(found, why);
  return found.size();
}

void FutureStore::settle_cancelled(const std::vector<FuturePtr>& futures, const Error& why) {
  for (const FuturePtr& future : futures) {
    std::function<void()> stop;
    {
      MutexLock lock(mutex_);
      stop = std::exchange(future->stop_, nullptr);
    }
    if (stop) stop();
    settle(future, why, {});
  }
}

FutureStore::WaitId FutureStore::wait(const UserId& user, const RequestId& request, Future::Done done,
                                      SessionId* session) {
  Result<FutureSnapshot> answer = FutureSnapshot();
  WaitId id = 0;
  FuturePtr to_read;
  {
    MutexLock lock(mutex_);
    const Result<FuturePtr> found = find_locked(user, request);
    if (found.ok()) {
      Future& future = **found;
      if (session != nullptr) *session = future.keys.session;
      if (!FinishedFutures::is_delivered(future)) ++future.polls_;
      if (future.state_ == FutureSnapshot::State::kPending || future.is_unread_from_store()) {
        id = next_wait_++;
        future.waiters_.emplace_back(id, std::exchange(done, nullptr));
        waits_.emplace(id, *found);
        if (future.is_unread_from_store() && !std::exchange(future.is_reading_, true)) to_read = *found;
      } else {
        deliver_locked(future);
        answer = outcome_of(snapshot_locked(*found));
      }
    } else {
      answer = found.error();
    }
  }
  if (to_read != nullptr) read(to_read);
  if (done) done(std::move(answer));
  return id;
}

void FutureStore::end_wait(WaitId wait) {
  Future::Done done;
  FutureSnapshot snapshot;
  {
    MutexLock lock(mutex_);
    const auto found = waits_.find(wait);
    if (found == waits_.end()) return;
    Future& future = *found->second;
    for (auto waiter = future.waiters_.begin(); waiter != future.waiters_.end(); ++waiter) {
      if (waiter->first != wait) continue;
      done = std::move(waiter->second);
      future.waiters_.erase(waiter);
      break;
    }
    snapshot = snapshot_locked(found->second);
    waits_.erase(found);
  }
  done(std::move(snapshot));
}

void FutureStore::shut_down() {
  std::vector<FuturePtr> pending;
  Waiters readers;
  std::vector<SampleFeeds::Waiter> watchers;
  {
    MutexLock lock(mutex_);
    shut_down_ = true;
    watchers = feeds_.take_waiters();
    pending = pending_.all();
    std::vector<FuturePtr> reading;
    for (const auto& [id, future] : waits_) {
      if (future->is_reading_) reading.push_back(future);
    }
    for (const FuturePtr& future : reading) {
      for (auto& waiter : take_waiters_locked(*future)) readers.push_back(std::move(waiter));
    }
  }
  for (const FuturePtr& future : pending) finish(future, shutting_down());
  for (auto& reader : readers) reader.second(shutting_down());
  for (auto& watcher : watchers) watcher.done({{}, watcher.after});
}

}  // namespace tuft::control
