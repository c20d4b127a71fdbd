#include "control/checkpoints/checkpoint_files.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tuft::control {

CheckpointUse CheckpointSpace::used_by(const UserId& user) const {
  MutexLock lock(mutex_);
  const auto found = used_.find(user);
  return found == used_.end() ? CheckpointUse{} : found->second;
}

std::unordered_map<UserId, int64_t> CheckpointSpace::used_by_user() const {
  std::unordered_map<UserId, int64_t> bytes;
  MutexLock lock(mutex_);
  for (const auto& [user, use] : used_) bytes.emplace(user, use.bytes);
  return bytes;
}

int64_t CheckpointSpace::used() const {
  int64_t sum = 0;
  MutexLock lock(mutex_);
  for (const auto& entry : used_) sum += entry.second.bytes;
  return sum;
}

std::vector<std::filesystem::path> CheckpointSpace::take_unneeded(size_t count_max) {
  MutexLock lock(mutex_);
  const size_t left = unneeded_.size() - std::min(count_max, unneeded_.size());
  std::vector<std::filesystem::path> taken(unneeded_.begin() + static_cast<ptrdiff_t>(left), unneeded_.end());
  unneeded_.resize(left);
  return taken;
}

bool CheckpointSpace::has_unneeded() const {
  MutexLock lock(mutex_);
  return !unneeded_.empty();
}

void CheckpointSpace::take_up(const UserId& user, const CheckpointUse& use) {
  MutexLock lock(mutex_);
  CheckpointUse& used = used_[user];
  used.bytes += use.bytes;
  used.count += use.count;
}

void CheckpointSpace::free(const UserId& user, const CheckpointUse& use, const std::filesystem::path& unneeded) {
  MutexLock lock(mutex_);
  const auto found = used_.find(user);
  if (found != used_.end()) {
    found->second.bytes -= use.bytes;
    found->second.count -= use.count;
    if (found->second.count <= 0) used_.erase(found);
  }
  if (!unneeded.empty()) unneeded_.push_back(unneeded);
}

CheckpointFiles::CheckpointFiles(std::shared_ptr<CheckpointSpace> space, std::shared_ptr<CheckpointStorage> storage,
                                 std::filesystem::path directory, UserId owner, const CheckpointUse& use)
    : space_(std::move(space)),
      storage_(std::move(storage)),
      directory_(std::move(directory)),
      owner_(std::move(owner)),
      use_(use) {
  space_->take_up(owner_, use_);
}

// The caller may hold a lock, so the disk thread removes the files.
CheckpointFiles::~CheckpointFiles() {
  space_->free(owner_, abandoned_ ? CheckpointUse{} : use_, abandoned_ ? directory_ : std::filesystem::path());
}

void CheckpointFiles::abandon() const {
  MutexLock lock(mutex_);
  if (abandoned_.exchange(true)) return;
  space_->free(owner_, use_, {});
  for (const auto& [user, count] : holders_) space_->take_up(user, use_);
}

void CheckpointFiles::hold(const UserId& user) const {
  MutexLock lock(mutex_);
  if (++holders_[user] == 1 && abandoned_) space_->take_up(user, use_);
}

void CheckpointFiles::let_go(const UserId& user) const {
  MutexLock lock(mutex_);
  const auto holder = holders_.find(user);
  if (--holder->second > 0) return;
  holders_.erase(holder);
  if (abandoned_) space_->free(user, use_, {});
}

CheckpointHold::CheckpointHold(std::shared_ptr<const CheckpointFiles> files, UserId user)
    : files_(std::move(files)), user_(std::move(user)) {
  files_->hold(user_);
}

CheckpointHoldPtr hold_checkpoint(const CheckpointPtr& checkpoint, const UserId& user) {
  if (checkpoint == nullptr || checkpoint->files == nullptr) return nullptr;
  return std::make_shared<const CheckpointHold>(checkpoint->files, user);
}

}  // namespace tuft::control
