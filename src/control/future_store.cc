#include "control/future_store.h"

#include <type_traits>
#include <utility>

#include "control/operation_keys.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

// What a finished future costs beside its value: the record, its strings, its places in the maps.
constexpr int64_t kRecordBytes = 768;

// A larger result cannot be kept in the store: as base64, with the record around it.
constexpr int64_t kStoredResultBytesMax = static_cast<int64_t>((store::kValueBytesMax - (size_t{1} << 20)) / 4 * 3);

int64_t bytes_of(const FutureValue& value) {
  const auto* protobuf = std::get_if<ProtobufResult>(&value);
  return protobuf == nullptr ? 0 : static_cast<int64_t>(protobuf->bytes.size());
}

Error shutting_down() {
  return unavailable("the server is shutting down", "shutting_down");
}

const telemetry::Tracer& tracer() {
  static const telemetry::Tracer instance = telemetry::get_tracer("tuft.futures");
  return instance;
}

}  // namespace

FutureStore::FutureStore(const config::Limits& limits, const Clock& clock, Persistence& persistence, bool tenant_label)
    : limits_(limits), clock_(clock), persistence_(persistence), tenant_label_(tenant_label) {
  bind_instruments();
  observe_states();
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
    TUFT_TRY(persistence_.available());
    if (!weight.is_servers) {
      TUFT_TRY(check_limits_locked(user, operation));
      TUFT_ASSIGN(memory, take_memory_locked(user, weight.payload_bytes, weight.waits_for_gap));
    }
    add_load_locked(user, operation, 1);
    future->number = next_number_++;
    by_request_.emplace(future->request, future);
    if (!future->key_.empty()) by_key_.emplace(future->key_, future);
    // Under the lock, so that whoever finds the future by its key finds its span too.
    future->span_ = tracer().start_span("future_store.execute_operation",
                                        {.attributes = KeyAttributes(future->keys), .parent = trace});
    if (!future->keys.run.empty()) future->span_.set_attribute("tuft.model_id", future->keys.run.str());
    future->context = future->span_.context();
    waiting_.push_back(future.get());
    future->in_pending_ = std::prev(waiting_.end());
    std::list<FuturePtr>& of_session = by_session_[future->keys.session];
    of_session.push_back(future);
    future->in_session_ = std::prev(of_session.end());
    ++counts_[static_cast<size_t>(operation)].queued;
    // Under the lock, so that a repetition that finds it waits for this write, too.
    if (persistence_.enabled()) persistence_.write({persistence_.put(record_of(*future))}, trace);
  }
  instruments_[static_cast<size_t>(operation)].created.add(1);
  queue_length_.add(1);
  const telemetry::ContextScope scope(future->context);
  telemetry::log_debug("future.enqueued", "operation accepted", KeyAttributes(future->keys));
  return Admission{std::move(future), true, std::move(memory)};
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
    running_.splice(running_.end(), waiting_, future.in_pending_);
    Counts& counts = counts_[static_cast<size_t>(future.operation)];
    --counts.queued;
    ++counts.running;
  }
  const telemetry::ContextScope scope(future.context);
  telemetry::log_debug("future.begin", "operation goes to the worker", KeyAttributes(future.keys));
}

void FutureStore::mark_started(Future& future, double queue_seconds) {
  const Nanos now = clock_.monotonic();
  MutexLock lock(mutex_);
  if (future.sent_ == 0 || future.started_ != 0 || future.state_ != FutureSnapshot::State::kPending) return;
  const Nanos longest = now - future.sent_;
  const bool sensible = queue_seconds > 0 && queue_seconds < to_seconds(longest);
  future.started_ = future.sent_ + (sensible ? static_cast<Nanos>(queue_seconds * kSecond) : 0);
}

FutureSnapshot FutureStore::snapshot_locked(const FuturePtr& future) {
  FutureSnapshot snapshot;
  snapshot.state = future->state_;
  snapshot.request = future->request;
  snapshot.operation = future->operation;
  snapshot.value = future->value_;
  snapshot.error = future->error_;
  snapshot.span = future->context;
  snapshot.created_monotonic = future->created;
  snapshot.keys = OperationKeysPtr(future, &future->keys);
  snapshot.at_worker = future->sent_ != 0;
  return snapshot;
}

void FutureStore::finish_locked(const FuturePtr& future, Result<FutureValue> result) {
  future->finished_ = clock_.monotonic();
  if (future->decided_ == 0) future->decided_ = future->finished_;
  future->stop_ = nullptr;
  future->bytes_ = kRecordBytes;
  if (result.ok()) {
    future->state_ = FutureSnapshot::State::kReady;
    future->bytes_ += bytes_of(*result);
    future->value_ = std::make_shared<const FutureValue>(std::move(*result));
  } else {
    future->state_ = FutureSnapshot::State::kFailed;
    future->error_ = std::move(result).error();
  }
  Counts& counts = counts_[static_cast<size_t>(future->operation)];
  --(future->sent_ == 0 ? counts.queued : counts.running);
  ++counts.unread;
  if (future->started_ == 0) future->started_ = future->sent_;  // it failed there, nobody says when it began
  (future->sent_ == 0 ? waiting_ : running_).erase(future->in_pending_);
  leave_session_locked(*future);
  bytes_ += future->bytes_;
  finished_.push_back(future);
  future->in_finished_ = std::prev(finished_.end());
  add_load_locked(future->user, future->operation, -1);
  for (const auto& waiter : future->waiters_) waits_.erase(waiter.first);
  if (!future->waiters_.empty()) mark_delivered_locked(*future);
}

void FutureStore::leave_session_locked(Future& future) {
  const auto session = by_session_.find(future.keys.session);
  session->second.erase(future.in_session_);
  if (session->second.empty()) by_session_.erase(session);
}

void FutureStore::mark_delivered_locked(Future& future) {
  if (future.in_delivered_) return;
  record_delivery_locked(future);
  --counts_[static_cast<size_t>(future.operation)].unread;
  delivered_.push_back(&future);
  future.in_delivered_ = std::prev(delivered_.end());
}

FutureRecord FutureStore::record_of(const Future& future) const {
  FutureRecord record;
  record.request = future.request;
  record.user = future.user;
  record.keys = future.keys;
  record.key = future.key_;
  record.number = future.number;
  record.created_at = iso_time(future.created_wall);
  return record;
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
    if (first && !result.ok()) free_key_locked(*future);
  }
  if (first) return settle(future, std::move(result), std::move(also));
  if (!also.empty() && persistence_.enabled()) persistence_.write(std::move(also), future->context);
}

// What has no number is asked for again under the same key: an unload_model that failed must not fail for ever.
void FutureStore::free_key_locked(Future& future) {
  if (future.keys.seq_id || future.operation != OperationType::kUnloadModel) return;
  by_key_.erase(future.key_);
  future.key_.clear();
}

void FutureStore::settle(const FuturePtr& future, Result<FutureValue> result, std::vector<store::Change> also) {
  bool durable = persistence_.enabled();
  if (durable) {
    MutexLock lock(mutex_);
    durable = !shut_down_;
  }
  if (!durable) return finish(future, std::move(result));
  const auto outcome = std::make_shared<Result<FutureValue>>(std::move(result));
  FutureRecord record = record_of(*future);
  record.state = FutureSnapshot::State::kFailed;
  if (!outcome->ok()) {
    record.error = outcome->error();
  } else if (bytes_of(outcome->value()) > kStoredResultBytesMax) {
    // This life of the server has it; the next one says why it has not.
    record.error = Error{ErrorCode::kGone,
                         "the server was restarted, and this result was too large to be kept over that (over " +
                             std::to_string(kStoredResultBytesMax) + " bytes)",
                         "result_too_large"};
  } else {
    record.state = FutureSnapshot::State::kReady;
    record.value = std::shared_ptr<const FutureValue>(outcome, &outcome->value());
  }
  also.push_back(persistence_.put(record));
  persistence_.write(std::move(also), future->context,
                     [this, future, outcome] { finish(future, std::move(*outcome)); });
}

void FutureStore::finish(const FuturePtr& future, Result<FutureValue> result) {
  Waiters waiters;
  FutureSnapshot snapshot;
  telemetry::Span span;
  std::vector<FuturePtr> unread;
  {
    MutexLock lock(mutex_);
    if (future->state_ != FutureSnapshot::State::kPending) return;
    finish_locked(future, std::move(result));
    waiters.swap(future->waiters_);
    snapshot = snapshot_locked(future);
    span = std::move(future->span_);
    evict_over_budget_locked(unread);
  }
  log_evicted(unread);
  record_end(*future, std::move(span), snapshot.state == FutureSnapshot::State::kFailed ? &snapshot.error : nullptr);
  for (auto& waiter : waiters) waiter.second(snapshot);
}

FutureStore::WaitId FutureStore::wait(const UserId& user, const RequestId& request, Future::Done done,
                                      SessionId* session) {
  Result<FutureSnapshot> answer = FutureSnapshot();
  {
    MutexLock lock(mutex_);
    const Result<FuturePtr> found = find_locked(user, request);
    if (found.ok()) {
      Future& future = **found;
      if (session != nullptr) *session = future.keys.session;
      if (!future.in_delivered_) ++future.polls_;
      if (future.state_ == FutureSnapshot::State::kPending) {
        const WaitId id = next_wait_++;
        future.waiters_.emplace_back(id, std::move(done));
        waits_.emplace(id, *found);
        return id;
      }
      mark_delivered_locked(future);
      answer = snapshot_locked(*found);
    } else {
      answer = found.error();
    }
  }
  done(std::move(answer));
  return 0;
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

void FutureStore::evict_locked(Future& future, std::string_view reason, std::vector<FuturePtr>& unread) {
  if (future.in_delivered_) {
    delivered_.erase(*future.in_delivered_);
  } else {
    telemetry::get_metrics().futures_evicted.add(1, {{"reason", reason}});
    --counts_[static_cast<size_t>(future.operation)].unread;
    unread.push_back(*future.in_finished_);
  }
  bytes_ -= future.bytes_;
  if (!future.key_.empty()) by_key_.erase(future.key_);
  forget_locked(future.request, future.user, nullptr);
  by_request_.erase(future.request);
  finished_.erase(future.in_finished_);  // the last reference of the store: `future` may be dead now
}

void FutureStore::forget_locked(const RequestId& request, const UserId& user, std::shared_ptr<const Error> why) {
  gone_.emplace(request, Gone{user, std::move(why)});
  gone_order_.push_back(request);
  if (gone_order_.size() <= kGoneMax) return;
  gone_.erase(gone_order_.front());
  gone_order_.pop_front();
}

void FutureStore::evict_over_budget_locked(std::vector<FuturePtr>& unread) {
  while (bytes_ > limits_.future_bytes_max && !finished_.empty()) {
    evict_locked(delivered_.empty() ? *finished_.front() : *delivered_.front(), "bytes", unread);
  }
}

void FutureStore::restore(const RestorePlan& plan) {
  std::vector<FuturePtr> unread;
  {
    MutexLock lock(mutex_);
    next_number_ = plan.last_future_number + 1;
    for (const FutureRecord& record : plan.gone) {
      forget_locked(record.request, record.user, std::make_shared<const Error>(record.error));
    }
    for (const FutureRecord& record : plan.futures) restore_locked(record);
    evict_over_budget_locked(unread);
  }
  log_evicted(unread);
  for (const FutureRecord& record : plan.settled) persistence_.write({persistence_.put(record)}, {});
}

void FutureStore::restore_locked(const FutureRecord& record) {
  auto future = std::make_shared<Future>();
  future->request = record.request;
  future->user = record.user;
  future->operation = record.keys.operation;
  future->keys = record.keys;
  future->number = record.number;
  future->created = future->finished_ = clock_.monotonic();
  future->key_ = record.key;
  future->state_ = record.state;
  future->value_ = record.value;
  future->error_ = record.error;
  future->bytes_ = kRecordBytes + (record.value == nullptr ? 0 : bytes_of(*record.value));
  if (!by_request_.emplace(future->request, future).second) return;
  if (!future->key_.empty() && !by_key_.emplace(future->key_, future).second) future->key_.clear();
  bytes_ += future->bytes_;
  ++counts_[static_cast<size_t>(future->operation)].unread;
  finished_.push_back(future);
  future->in_finished_ = std::prev(finished_.end());
}

void FutureStore::sweep() {
  constexpr int kBatch = 10'000;  // so that nobody waits long for the lock; the rest goes next time
  const Nanos oldest = clock_.monotonic() - limits_.future_retention_seconds * kSecond;
  std::vector<FuturePtr> unread;
  {
    MutexLock lock(mutex_);
    for (int i = 0; i < kBatch && !finished_.empty() && finished_.front()->finished_ < oldest; ++i) {
      evict_locked(*finished_.front(), "retention", unread);
    }
  }
  log_evicted(unread);
}

void FutureStore::shut_down() {
  std::vector<FuturePtr> pending;
  {
    MutexLock lock(mutex_);
    shut_down_ = true;
    for (const auto& [session, futures] : by_session_) pending.insert(pending.end(), futures.begin(), futures.end());
  }
  for (const FuturePtr& future : pending) finish(future, shutting_down());
}

}  // namespace tuft::control
