// The files of checkpoints: how long they live, and what they take.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "control/types.h"

namespace tuft::control {

// What the checkpoints of each user take, and which directories nobody needs any more. Thread-safe; its lock is
// innermost.
class CheckpointSpace {
 public:
  int64_t used_by(const UserId& user) const;
  std::unordered_map<UserId, int64_t> used_by_user() const;
  int64_t used() const;
  // Directories to remove, each told once.
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

// The directory of one checkpoint, which never moves. Whoever reads it holds this: it stays until the last one lets go,
// also when the checkpoint is deleted or replaced meanwhile. Thread-safe.
class CheckpointFiles {
 public:
  CheckpointFiles(std::shared_ptr<CheckpointSpace> space, std::filesystem::path directory, UserId owner, int64_t bytes);
  ~CheckpointFiles();
  CheckpointFiles(const CheckpointFiles&) = delete;
  CheckpointFiles& operator=(const CheckpointFiles&) = delete;

  const std::filesystem::path& directory() const { return directory_; }
  // No name leads here any more: they go with the last who holds them.
  void abandon() const { abandoned_ = true; }
  bool abandoned() const { return abandoned_; }
  // They are about to go, as nobody uses them: they count for nobody from now on.
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
