// What users may have pending, and how pending operations are cancelled.
#include <utility>

#include "control/future_store.h"
#include "control/quota.h"

namespace tuft::control {

Status FutureStore::check_limits_locked(const UserId& user, OperationType operation) const {
  const auto load = load_by_user_.find(user);
  const int pending = load == load_by_user_.end() ? 0 : load->second.pending;
  if (pending >= limits_.futures_per_user_max) {
    return over_quota(Quota::kFutures, "you have " + std::to_string(pending) + " operations that have not finished",
                      "wait for some");
  }
  if (operation == OperationType::kSample && is_at_sample_limit_locked(user)) return over_sample_limit_locked(user);
  return {};
}

bool FutureStore::is_at_sample_limit_locked(const UserId& user) const {
  const auto load = load_by_user_.find(user);
  return load != load_by_user_.end() && load->second.samples >= limits_.samples_in_flight_per_user_max;
}

Error FutureStore::over_sample_limit_locked(const UserId& user) const {
  return over_quota(Quota::kSamplesInFlight,
                    "you have " + std::to_string(load_by_user_.at(user).samples) + " samples that have not finished",
                    "wait for some");
}

void FutureStore::add_load_locked(const UserId& user, OperationType operation, int by) {
  const auto load = load_by_user_.try_emplace(user).first;
  load->second.pending += by;
  if (operation == OperationType::kSample) load->second.samples += by;
  if (load->second.pending == 0 && load->second.samples == 0) load_by_user_.erase(load);
}

Result<ByteAccount::Hold> FutureStore::take_memory_locked(const UserId& user, int64_t payload_bytes,
                                                          bool waits_for_gap) {
  const int64_t most = limits_.queued_bytes_per_user_max;
  const int64_t bytes = kOperationBytes + payload_bytes;
  if (bytes > most) {
    return Error{ErrorCode::kPayloadTooLarge,
                 "this operation takes " + std::to_string(bytes) + " bytes of memory, and " + std::to_string(most) +
                     " are allowed (limits.queued_bytes_per_user_max); send it in smaller requests",
                 "queued_bytes_per_user_max"};
  }
  ByteAccount::Hold memory = memory_->open(user.str());
  const bool fits = memory.grow_to(bytes, {.each = waits_for_gap ? most / 2 : most}) == ByteAccount::Answer::kTaken;
  if (const auto load = load_by_user_.find(user); load != load_by_user_.end()) load->second.is_memory_full = !fits;
  if (fits) return memory;
  return over_quota(Quota::kQueuedBytes,
                    "your operations that have not finished hold " + std::to_string(memory_->held_by(user.str())) +
                        " bytes, this one takes " + std::to_string(bytes) + " more, and " + std::to_string(most) +
                        " are allowed" + (waits_for_gap ? " (half of it where a lower seq_id is missing)" : ""),
                    "wait for some");
}

Result<ByteAccount::Hold> FutureStore::take_sample(const UserId& user, int64_t payload_bytes) {
  MutexLock lock(mutex_);
  if (is_at_sample_limit_locked(user)) return over_sample_limit_locked(user);
  TUFT_ASSIGN(ByteAccount::Hold memory, take_memory_locked(user, payload_bytes, false));
  ++load_by_user_[user].samples;
  return memory;
}

Result<ByteAccount::Hold> FutureStore::take_memory(const UserId& user, int64_t payload_bytes) {
  MutexLock lock(mutex_);
  return take_memory_locked(user, payload_bytes, false);
}

void FutureStore::give_back_sample(const UserId& user) {
  MutexLock lock(mutex_);
  const auto load = load_by_user_.find(user);
  if (--load->second.samples == 0 && load->second.pending == 0) load_by_user_.erase(load);
}

std::optional<std::string> FutureStore::limit_reached(const UserId& user) const {
  MutexLock lock(mutex_);
  const auto load = load_by_user_.find(user);
  if (load == load_by_user_.end()) return std::nullopt;
  const auto at = [](int count, Quota quota) {
    return "you have " + std::to_string(count) + " operations pending, which is " + std::string(quota_limit(quota));
  };
  if (load->second.pending >= limits_.futures_per_user_max) return at(load->second.pending, Quota::kFutures);
  if (is_at_sample_limit_locked(user)) return at(load->second.samples, Quota::kSamplesInFlight);
  if (load->second.is_memory_full) {
    return "your operations that have not finished hold " + std::to_string(memory_->held_by(user.str())) +
           " bytes, and the newest found no room below " + std::string(quota_limit(Quota::kQueuedBytes));
  }
  return std::nullopt;
}

Result<FuturePtr> FutureStore::find_locked(const UserId& user, const RequestId& request) const {
  const FuturePtr* found = by_request_.find(request);
  if (found != nullptr && (*found)->user == user) return *found;
  const Gone* gone = gone_.find(request);
  if (gone == nullptr || gone->user != user) {
    return not_found("unknown request_id: it was never issued to you, or its result was dropped long ago",
                     "future_not_found");
  }
  if (gone->why != nullptr) return *gone->why;
  return Error{ErrorCode::kGone,
               "the result was dropped: it was older than limits.future_retention_seconds or over "
               "limits.future_bytes_max",
               "future_gone"};
}

// Training changes weights, whether anybody wants the answer or not.
bool FutureStore::can_cancel_locked(const Future& future) {
  return future.decided_ == 0 && (!future.claimed_ || future.operation == OperationType::kSample);
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
    if (!can_cancel_locked(*future)) return {};
    future->decided_ = clock_.monotonic();
    found.push_back(future);
  }
  settle_cancelled(found, Error{ErrorCode::kCancelled, "cancelled by the client", "cancelled"});
  return {};
}

void FutureStore::cancel_session(const SessionId& session, const Error& why) {
  std::vector<FuturePtr> found;
  {
    MutexLock lock(mutex_);
    const auto pending = by_session_.find(session);
    if (pending == by_session_.end()) return;
    for (const FuturePtr& future : pending->second) {
      if (future->is_servers_ || !can_cancel_locked(*future)) continue;
      future->decided_ = clock_.monotonic();
      found.push_back(future);
    }
  }
  settle_cancelled(found, why);
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

}  // namespace tuft::control
