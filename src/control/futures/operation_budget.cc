#include "control/futures/operation_budget.h"

#include <string_view>

#include "control/accounts/quota.h"

namespace tuft::control {

OperationBudget::OperationBudget(const config::Limits& limits)
    : pending_max_(limits.futures_per_user_max),
      samples_max_(limits.samples_in_flight_per_user_max),
      bytes_max_(limits.queued_bytes_per_user_max) {}

OperationBudget::Load OperationBudget::load_locked(const UserId& user) const {
  const auto load = load_by_user_.find(user);
  return load == load_by_user_.end() ? Load() : load->second;
}

void OperationBudget::add_locked(const UserId& user, int pending, int samples) {
  const auto load = load_by_user_.try_emplace(user).first;
  load->second.pending += pending;
  load->second.samples += samples;
  if (load->second.pending == 0 && load->second.samples == 0) load_by_user_.erase(load);
}

Status OperationBudget::check_samples_locked(const UserId& user) const {
  const int samples = load_locked(user).samples;
  if (samples < samples_max_) return {};
  return over_quota(Quota::kSamplesInFlight, "you have " + std::to_string(samples) + " samples that have not finished",
                    "wait for some");
}

Result<ByteAccount::Hold> OperationBudget::take_memory_locked(const UserId& user, int64_t payload_bytes,
                                                              bool waits_for_gap) {
  const int64_t bytes = kOperationBytes + payload_bytes;
  if (bytes > bytes_max_) {
    return Error{ErrorCode::kPayloadTooLarge,
                 "this operation takes " + std::to_string(bytes) + " bytes of memory, and " +
                     std::to_string(bytes_max_) +
                     " are allowed (limits.queued_bytes_per_user_max); send it in smaller requests",
                 "queued_bytes_per_user_max"};
  }
  ByteAccount::Hold memory = memory_->open(user.str());
  const int64_t most = waits_for_gap ? bytes_max_ / 2 : bytes_max_;
  const bool fits = memory.grow_to(bytes, {.each = most}) == ByteAccount::Answer::kTaken;
  if (const auto load = load_by_user_.find(user); load != load_by_user_.end()) load->second.is_memory_full = !fits;
  if (fits) return memory;
  return over_quota(Quota::kQueuedBytes,
                    "your operations that have not finished hold " + std::to_string(memory_->held_by(user.str())) +
                        " bytes, this one takes " + std::to_string(bytes) + " more, and " + std::to_string(bytes_max_) +
                        " are allowed" + (waits_for_gap ? " (half of it where a lower seq_id is missing)" : ""),
                    "wait for some");
}

Result<ByteAccount::Hold> OperationBudget::begin(const UserId& user, OperationType operation, const Weight& weight) {
  const int samples = operation == OperationType::kSample ? 1 : 0;
  ByteAccount::Hold memory;
  MutexLock lock(mutex_);
  if (!weight.is_servers) {
    const int pending = load_locked(user).pending;
    if (pending >= pending_max_) {
      return over_quota(Quota::kFutures, "you have " + std::to_string(pending) + " operations that have not finished",
                        "wait for some");
    }
    if (samples > 0) TUFT_TRY(check_samples_locked(user));
    TUFT_ASSIGN(memory, take_memory_locked(user, weight.payload_bytes, weight.waits_for_gap));
  }
  add_locked(user, 1, samples);
  return memory;
}

void OperationBudget::end(const UserId& user, OperationType operation) {
  MutexLock lock(mutex_);
  add_locked(user, -1, operation == OperationType::kSample ? -1 : 0);
}

Result<ByteAccount::Hold> OperationBudget::begin_stream(const UserId& user, int64_t payload_bytes) {
  MutexLock lock(mutex_);
  TUFT_TRY(check_samples_locked(user));
  TUFT_ASSIGN(ByteAccount::Hold memory, take_memory_locked(user, payload_bytes, false));
  add_locked(user, 0, 1);
  return memory;
}

void OperationBudget::end_stream(const UserId& user) {
  MutexLock lock(mutex_);
  add_locked(user, 0, -1);
}

Result<ByteAccount::Hold> OperationBudget::take_memory(const UserId& user, int64_t payload_bytes) {
  MutexLock lock(mutex_);
  return take_memory_locked(user, payload_bytes, false);
}

OperationBudget::Use OperationBudget::use_of(const UserId& user) const {
  MutexLock lock(mutex_);
  const Load load = load_locked(user);
  return {load.pending, load.samples, memory_->held_by(user.str())};
}

std::optional<std::string> OperationBudget::limit_reached(const UserId& user) const {
  Load load;
  {
    MutexLock lock(mutex_);
    load = load_locked(user);
  }
  const auto at = [](int count, Quota quota) {
    return "you have " + std::to_string(count) + " operations pending, which is " + std::string(quota_limit(quota));
  };
  if (load.pending == 0 && load.samples == 0) return std::nullopt;
  if (load.pending >= pending_max_) return at(load.pending, Quota::kFutures);
  if (load.samples >= samples_max_) return at(load.samples, Quota::kSamplesInFlight);
  if (!load.is_memory_full) return std::nullopt;
  return "your operations that have not finished hold " + std::to_string(memory_->held_by(user.str())) +
         " bytes, and the newest found no room below " + std::string(quota_limit(Quota::kQueuedBytes));
}

}  // namespace tuft::control
