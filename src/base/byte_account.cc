#include "base/byte_account.h"

#include <utility>

#include "base/check.h"

namespace tuft {

ByteAccount::Hold::Hold(Hold&& other) noexcept
    : account_(std::move(other.account_)), who_(std::move(other.who_)), bytes_(std::exchange(other.bytes_, 0)) {}

ByteAccount::Hold& ByteAccount::Hold::operator=(Hold&& other) noexcept {
  if (this == &other) return *this;
  shrink_to(0);
  account_ = std::move(other.account_);
  who_ = std::move(other.who_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

ByteAccount::Answer ByteAccount::Hold::grow_to(int64_t bytes, const Most& most) {
  if (bytes <= bytes_) return Answer::kTaken;
  if (account_ == nullptr) return Answer::kOverEach;
  const Answer answer = account_->take(who_, bytes - bytes_, most);
  if (answer == Answer::kTaken) bytes_ = bytes;
  return answer;
}

void ByteAccount::Hold::shrink_to(int64_t bytes) {
  if (bytes >= bytes_) return;
  account_->give_back(who_, bytes_ - bytes);
  bytes_ = bytes;
}

void ByteAccount::Hold::join(Hold&& other) {
  TUFT_CHECK(account_ == other.account_ && who_ == other.who_, "holds of two holders are joined");
  bytes_ += std::exchange(other.bytes_, 0);
}

int64_t ByteAccount::total() const {
  MutexLock lock(mutex_);
  return total_;
}

int64_t ByteAccount::held_by(const std::string& who) const {
  MutexLock lock(mutex_);
  const auto found = held_.find(who);
  return found == held_.end() ? 0 : found->second;
}

ByteAccount::Answer ByteAccount::take(const std::string& who, int64_t bytes, const Most& most) {
  MutexLock lock(mutex_);
  const auto found = held_.find(who);
  const int64_t held = found == held_.end() ? 0 : found->second;
  if (held > most.each - bytes) return Answer::kOverEach;
  if (total_ > most.all - bytes) return Answer::kOverAll;
  total_ += bytes;
  held_[who] = held + bytes;
  return Answer::kTaken;
}

void ByteAccount::give_back(const std::string& who, int64_t bytes) {
  MutexLock lock(mutex_);
  total_ -= bytes;
  const auto found = held_.find(who);
  found->second -= bytes;
  if (found->second == 0) held_.erase(found);
}

}  // namespace tuft
