// How finished futures are kept: restored after a restart, read from the store when a client asks, and dropped.
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "control/futures/future_store.h"

namespace tuft::control {
namespace {

// Futures that are evicted while the lock is held, and whose records are erased by one write.
constexpr int kEvictedAtOnce = 1'000;

}  // namespace

void FutureStore::restore(RestorePlan& plan) {
  for (const FutureRecord& record : plan.settled) store_settled(record);
  {
    MutexLock lock(mutex_);
    next_number_ = plan.last_future_number + 1;
    for (const FutureRecord& record : plan.gone) {
      finished_.remember_gone(record.request, record.user, std::make_shared<const Error>(record.error));
      feeds_.lost(record.user, record.request, record.keys, clock_.wall());
    }
    for (FutureRecord& record : plan.futures) restore_locked(record);
  }
  evict_over_budget();
}

FuturePtr FutureStore::future_of(FutureRecord& record) const {
  auto future = std::make_shared<Future>();
  future->request = std::move(record.request);
  future->user = std::move(record.user);
  future->operation = record.keys.operation;
  future->keys = std::move(record.keys);
  future->number = record.number;
  future->created = clock_.monotonic();
  future->key_ = std::move(record.key);
  return future;
}

void FutureStore::restore_locked(FutureRecord& record) {
  const FuturePtr future = future_of(record);
  future->finished_ = future->created;
  future->state_ = record.state;
  future->value_ = std::move(record.value);
  future->lies_apart_ = record.apart.has_value();
  future->result_bytes_ = record.apart.value_or(future->value_ == nullptr ? 0 : bytes_of(*future->value_));
  future->error_ = std::move(record.error);
  if (!by_request_.emplace(future->request, future).second) return;
  if (!future->key_.empty() && !by_key_.emplace(future->key_, future).second) future->key_.clear();
  finished_.add(future);
  ++telemetry_.counts(future->operation).unread;
  (void)feeds_.finished(*future, clock_.wall());  // nobody waits yet
}

FuturePtr FutureStore::take_in(const FutureRecord& record) {
  FutureRecord taken = record;
  FuturePtr future = future_of(taken);
  future->keys.request = record.request;
  future->created_wall = clock_.wall();
  {
    MutexLock lock(mutex_);
    if (shut_down_ || by_request_.find(record.request) != nullptr) return nullptr;
    if (!future->key_.empty() && by_key_.find(future->key_) != nullptr) return nullptr;
    if (future->number == 0) future->number = next_number_++;
    // No limit applies: the operation was admitted before.
    if (!budget_.begin(record.user, future->operation, {.is_servers = true}).ok()) return nullptr;
    begin_locked(future, {});
  }
  telemetry_.on_accepted(*future);
  count_queue_state(*future);
  return future;
}

void FutureStore::store_settled(const FutureRecord& record) {
  std::vector<store::Change> changes = persistence_.put(record);
  if (record.state == FutureSnapshot::State::kFailed) changes.push_back(persistence_.erase_result(record.request));
  persistence_.write(record.user, std::move(changes), {});
}

void FutureStore::undo(const std::vector<FutureRecord>& records) {
  Evicted evicted;
  std::vector<const FutureRecord*> settled;
  {
    MutexLock lock(mutex_);
    for (const FutureRecord& record : records) {
      const FuturePtr* found = by_request_.find(record.request);
      if (found == nullptr) continue;
      const FuturePtr future = *found;
      if (record.key.empty() && !future->key_.empty()) {
        by_key_.erase(future->key_);
        future->key_.clear();
      }
      if (!future->is_kept_) continue;
      settled.push_back(&record);
      if (!is_gone(record)) continue;  // its result, or its own failure, stays, and its number is free
      (void)finished_.take_out(*future, std::make_shared<const Error>(record.error));
      forget_locked(future, "undone", evicted);
    }
  }
  finish_evicting(std::move(evicted));
  for (const FutureRecord* record : settled) store_settled(*record);
}

// The store answers every read, at the latest when it is closed, which is before this object ends.
void FutureStore::read(const FuturePtr& future) {
  persistence_.read_result(future->request, telemetry::current_context(),
                           [this, future](Result<std::string> bytes) { on_read(future, std::move(bytes)); });
}

// The future may have been evicted meanwhile. Those who wait get its result all the same.
void FutureStore::on_read(const FuturePtr& future, Result<std::string> bytes) {
  Waiters waiters;
  Result<FutureSnapshot> answer = FutureSnapshot();
  {
    MutexLock lock(mutex_);
    future->is_reading_ = false;
    waiters = take_waiters_locked(*future);
    if (bytes.ok()) {
      future->value_ = std::make_shared<const FutureValue>(ProtobufResult{std::move(*bytes)});
      if (!waiters.empty()) deliver_locked(*future);
      answer = snapshot_locked(future);
    } else {
      answer = bytes.error();
    }
  }
  for (auto& waiter : waiters) waiter.second(answer);
}

void FutureStore::evict_over_budget() {
  for (bool has_more = true; has_more;) {
    Evicted evicted;
    {
      MutexLock lock(mutex_);
      has_more = evict_some_locked(evicted);
    }
    finish_evicting(std::move(evicted));
  }
}

bool FutureStore::evict_some_locked(Evicted& evicted) {
  for (int i = 0; i < kEvictedAtOnce; ++i) {
    const FuturePtr future = finished_.evict_over(limits_.future_bytes_max, limits_.future_bytes_per_user_max);
    if (future == nullptr) return false;
    forget_locked(future, "bytes", evicted);
  }
  return true;
}

void FutureStore::forget_locked(const FuturePtr& future, std::string_view reason, Evicted& evicted) {
  if (!FinishedFutures::is_delivered(*future)) {
    FutureTelemetry::count_evicted(reason);
    --telemetry_.counts(future->operation).unread;
    evicted.unread.push_back(future);
  }
  if (!future->key_.empty()) by_key_.erase(future->key_);
  by_request_.erase(future->request);
  feeds_.forgotten(*future);
  if (!persistence_.enabled()) return;
  evicted.erased.push_back(persistence_.erase(future->request));
  if (future->lies_apart_) evicted.erased.push_back(persistence_.erase_result(future->request));
}

void FutureStore::finish_evicting(Evicted evicted) {
  FutureTelemetry::log_evicted(evicted.unread);
  if (!evicted.erased.empty()) persistence_.write({}, std::move(evicted.erased), {});
}

FutureStore::WaitId FutureStore::watch(const SampleFeed& feed, int64_t after, bool waits, SampleFeeds::Done done) {
  SampleNews news;
  {
    MutexLock lock(mutex_);
    news = feeds_.news(feed, after);
    if (news.completions.empty() && waits && !shut_down_) {
      const WaitId number = next_wait_++;
      feeds_.wait(feed, {number, after, std::move(done)});
      return number;
    }
  }
  done(std::move(news));
  return 0;
}

void FutureStore::end_watch(const SampleFeed& feed, WaitId watch) {
  std::optional<SampleFeeds::Waiter> waiter;
  {
    MutexLock lock(mutex_);
    waiter = feeds_.take_waiter(feed, watch);
  }
  if (waiter) waiter->done({{}, waiter->after});
}

void FutureStore::sweep() {
  // So that nobody waits long for the lock, or for the store; the rest goes next time.
  const int batch = persistence_.enabled() ? kEvictedAtOnce : 10'000;
  const Nanos oldest = clock_.monotonic() - limits_.future_retention_seconds * kSecond;
  Evicted evicted;
  {
    MutexLock lock(mutex_);
    for (int i = 0; i < batch; ++i) {
      const FuturePtr future = finished_.evict_before(oldest);
      if (future == nullptr) break;
      forget_locked(future, "retention", evicted);
    }
  }
  finish_evicting(std::move(evicted));
}

}  // namespace tuft::control
