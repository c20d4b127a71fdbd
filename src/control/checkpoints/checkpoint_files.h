// The lifetime and the disk space of checkpoint files.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "control/types/types.h"

namespace tuft::control {

// Counts the bytes of each user's checkpoints and collects directories that are no longer used. Thread-safe; no other
// lock is taken while its lock is held.
class CheckpointSpace {
 public:
  int64_t used_by(const UserId& user) const;
  std::unordered_map<UserId, int64_t> used_by_user() const;
  int64_t used() const;
  // Returns the directories to remove, each once.
  std::vector<std::filesystem::path> take_unneeded();
  bool has_unneeded() const;

 private:
  friend class CheckpointFiles;
  void take_up(const UserId& user, int64_t bytes);
  void free(const UserId& user, int64_t bytes, const std::filesystem::path& unneeded);

  mutable Mutex mutex_;
  std::unordered_map<UserId, int64_t> used_ TUFT_GUARDED_BY(mutex_);
  std::vector<std::filesystem::path> unneeded_ TUFT_GUARDED_BY(mutex_);
};

// The directory of one checkpoint, which never moves. It exists as long as this object, so readers hold a reference,
// even if the checkpoint is deleted or replaced meanwhile. Thread-safe.
class CheckpointFiles {
 public:
  CheckpointFiles(std::shared_ptr<CheckpointSpace> space, std::filesystem::path directory, UserId owner, int64_t bytes);
  ~CheckpointFiles();
  CheckpointFiles(const CheckpointFiles&) = delete;
  CheckpointFiles& operator=(const CheckpointFiles&) = delete;

  const std::filesystem::path& directory() const { return directory_; }
  // Marks the files for removal when the last reference is released, because the checkpoint has lost its name.
  void abandon() const { abandoned_ = true; }
  bool abandoned() const { return abandoned_; }
  // Stops counting the bytes, because the files are about to be removed.
  void discount() const;

 private:
  const std::shared_ptr<CheckpointSpace> space_;
  const std::filesystem::path directory_;
  const UserId owner_;
  const int64_t bytes_;
  mutable std::atomic<bool> abandoned_ = false;
  mutable std::atomic<bool> discounted_ = false;
};

}  // namespace tuft::control
