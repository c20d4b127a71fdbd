#include "control/sampling/sample_records.h"

#include <string_view>

#include "control/sampling/sample_request.h"
#include "metrics/sampling.h"

namespace tuft::control {
namespace {

constexpr size_t kDropsMax = 64;  // while the lock is held

}  // namespace

SampleRecords::SampleRecords(const config::Limits& limits, const Clock& clock, const Sessions& sessions)
    : limits_(limits), clock_(clock), sessions_(sessions) {}

size_t SampleRecords::size() const {
  MutexLock lock(mutex_);
  return by_id_.size();
}

int64_t SampleRecords::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

void SampleRecords::keep(const OperationKeys& keys, worker::v1::SampleResponse& answer) {
  const Nanos now = clock_.monotonic();
  for (int i = 0; i < answer.records_size(); ++i) {
    worker::v1::SequenceRecord& source = *answer.mutable_records(i);
    const auto bytes = kEntryBytes + static_cast<int64_t>(source.tokens().size() + source.logprobs().size());
    auto record = std::make_shared<Record>(
        Record{answer.prompt_tokens(), std::move(*source.mutable_tokens()), std::move(*source.mutable_logprobs())});
    add({sequence_id(keys.request, i), keys.user, keys.session, std::move(record), bytes, now, {}});
  }
  answer.clear_records();
  drop(Drop::kLimit);
  // The session may have begun to end before it could see the records.
  if (!sessions_.exists(keys.session)) close_session(keys.session);
}

void SampleRecords::add(Entry entry) {
  MutexLock lock(mutex_);
  if (by_id_.find(entry.id) != nullptr) return;
  count_locked(entry.user, entry.bytes);
  Entries& entries = shelves_[entry.user].entries;
  const auto added = entries.insert(entries.end(), std::move(entry));
  std::list<Entry*>& of_session = by_session_[added->session];
  added->in_session = of_session.insert(of_session.end(), &*added);
  by_id_.emplace(added->id, added);
}

SampleRecords::RecordPtr SampleRecords::use(const UserId& user, const SessionId& session,
                                            const std::string& sequence_id) {
  MutexLock lock(mutex_);
  const Entries::iterator* const found = by_id_.find(sequence_id);
  if (found == nullptr) return nullptr;
  Entry& entry = **found;
  if (entry.user != user || entry.session != session) return nullptr;
  entry.used = clock_.monotonic();
  Entries& entries = shelves_.at(user).entries;
  entries.splice(entries.end(), entries, *found);
  return entry.record;
}

void SampleRecords::close_session(const SessionId& session) {
  drop(Drop::kSession, session);
}

void SampleRecords::sweep() {
  drop(Drop::kExpired);
}

void SampleRecords::drop(Drop why, const SessionId& session) {
  constexpr std::string_view kReasons[] = {"limit", "expired", "session_ended"};
  for (size_t count = kDropsMax; count == kDropsMax;) {
    Entries dropped;  // destroyed without the lock
    {
      MutexLock lock(mutex_);
      while (dropped.size() < kDropsMax) {
        const Entry* const entry = next_locked(why, session);
        if (entry == nullptr) break;
        take_out_locked(*entry, dropped);
      }
    }
    count = dropped.size();
    if (count == 0) return;
    metrics::sampling().records_dropped.add(static_cast<int64_t>(count),
                                            {{"reason", kReasons[static_cast<size_t>(why)]}});
  }
}

SampleRecords::Entry* SampleRecords::next_locked(Drop why, const SessionId& session) {
  if (why == Drop::kLimit) return next_over_limit_locked();
  if (why == Drop::kExpired) return next_expired_locked();
  const auto found = by_session_.find(session);
  return found == by_session_.end() ? nullptr : found->second.front();
}

// A user over the own limit has more than one within it, so it is enough to look at the users with the most.
SampleRecords::Entry* SampleRecords::next_over_limit_locked() {
  if (by_bytes_.empty()) return nullptr;
  const auto& [most, user] = by_bytes_.largest();
  const bool is_over = most > limits_.sample_record_bytes_per_user_max || bytes_ > limits_.sample_record_bytes_max;
  return is_over ? &shelves_.at(user).entries.front() : nullptr;
}

SampleRecords::Entry* SampleRecords::next_expired_locked() {
  const Nanos now = clock_.monotonic();
  for (auto& [user, shelf] : shelves_) {
    if (now - shelf.entries.front().used >= kLife) return &shelf.entries.front();
  }
  return nullptr;
}

void SampleRecords::take_out_locked(const Entry& entry, Entries& dropped) {
  const auto of_session = by_session_.find(entry.session);
  of_session->second.erase(entry.in_session);
  if (of_session->second.empty()) by_session_.erase(of_session);
  const Entries::iterator place = *by_id_.find(entry.id);
  by_id_.erase(entry.id);
  dropped.splice(dropped.end(), shelves_.at(entry.user).entries, place);
  count_locked(entry.user, -entry.bytes);
}

// Forgets a user who has nothing left.
void SampleRecords::count_locked(const UserId& user, int64_t change) {
  Shelf& shelf = shelves_[user];
  by_bytes_.change(user, shelf.bytes, shelf.bytes + change);
  shelf.bytes += change;
  bytes_ += change;
  if (shelf.bytes == 0) shelves_.erase(user);
}

}  // namespace tuft::control
