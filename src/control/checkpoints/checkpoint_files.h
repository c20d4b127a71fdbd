// The lifetime and the disk space of checkpoint files.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "control/checkpoints/checkpoint_storage.h"
#include "control/types/checkpoint.h"
#include "control/types/types.h"

namespace tuft::control {

// Counts each user's checkpoints and their bytes, and collects places that are no longer used. Thread-safe; no
// other lock is taken while its lock is held.
class CheckpointSpace {
 public:
  CheckpointUse used_by(const UserId& user) const;
  std::unordered_map<UserId, int64_t> used_by_user() const;
  int64_t used() const;
  // Returns at most `count_max` places whose files are to be removed, each once.
  std::vector<std::filesystem::path> take_unneeded(size_t count_max);
  bool has_unneeded() const;

 private:
  friend class CheckpointFiles;
  void take_up(const UserId& user, const CheckpointUse& use);
  void free(const UserId& user, const CheckpointUse& use, const std::filesystem::path& unneeded);

  mutable Mutex mutex_;
  std::unordered_map<UserId, CheckpointUse> used_ TUFT_GUARDED_BY(mutex_);
  std::vector<std::filesystem::path> unneeded_ TUFT_GUARDED_BY(mutex_);
};

// The files of one checkpoint at their place. They exist as long as this object, so readers hold a reference, even if
// the checkpoint is deleted or replaced meanwhile. Thread-safe; its lock may be held while CheckpointSpace
// takes its own.
//
// It counts for the owner as long as the checkpoint has its name. Afterwards it counts for each user who still
// holds the files (CheckpointHold): neither can a stranger's sampling session fill the quota of the owner, nor can an
// owner keep files for nothing.
class CheckpointFiles {
 public:
  CheckpointFiles(std::shared_ptr<CheckpointSpace> space, std::shared_ptr<CheckpointStorage> storage,
                  std::filesystem::path directory, UserId owner, const CheckpointUse& use);
  ~CheckpointFiles();
  CheckpointFiles(const CheckpointFiles&) = delete;
  CheckpointFiles& operator=(const CheckpointFiles&) = delete;

  // The place; workers call it the directory.
  const std::filesystem::path& directory() const { return directory_; }
  // [disk] Opens one of the files, which can be read as long as it is open and this object exists.
  Result<std::unique_ptr<CheckpointFile>> open(const std::string& file) const {
    return storage_->open(directory_, file);
  }
  // Marks the files for removal when the last reference is released, because the checkpoint has lost its name.
  void abandon() const;
  bool abandoned() const { return abandoned_; }

 private:
  friend class CheckpointHold;
  void hold(const UserId& user) const;
  void let_go(const UserId& user) const;

  const std::shared_ptr<CheckpointSpace> space_;
  const std::shared_ptr<CheckpointStorage> storage_;
  const std::filesystem::path directory_;
  const UserId owner_;
  const CheckpointUse use_;
  mutable std::atomic<bool> abandoned_ = false;  // written under mutex_
  mutable Mutex mutex_;
  mutable std::unordered_map<UserId, int> holders_ TUFT_GUARDED_BY(mutex_);
};

// A user's use of a checkpoint that may outlive its name: a sampling session, or the restore point of a run.
class CheckpointHold {
 public:
  CheckpointHold(std::shared_ptr<const CheckpointFiles> files, UserId user);
  ~CheckpointHold() { files_->let_go(user_); }
  CheckpointHold(const CheckpointHold&) = delete;
  CheckpointHold& operator=(const CheckpointHold&) = delete;

 private:
  const std::shared_ptr<const CheckpointFiles> files_;
  const UserId user_;
};
using CheckpointHoldPtr = std::shared_ptr<const CheckpointHold>;
// Returns null if the checkpoint is null or has no files yet.
CheckpointHoldPtr hold_checkpoint(const CheckpointPtr& checkpoint, const UserId& user);

}  // namespace tuft::control
