// The checkpoints of the server: an index in memory, and the files.
//
// The room checkpoints/ promises: a checkpoint is complete or absent, after a crash too; its files exist as long as
// anyone reads them; no user can find, change or delete a checkpoint of another user that is not public.
//
// Where the files are is the subject of checkpoint_storage.h. A checkpoint that is deleted or replaced loses its name
// at once, and its files are removed when the last reader is done.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "control/checkpoints/checkpoint_files.h"
#include "control/checkpoints/checkpoint_lists.h"
#include "control/checkpoints/checkpoint_storage.h"
#include "control/types/checkpoint.h"

namespace tuft::control {

// It has more than 25 methods: each question about checkpoints has one of its own, most of them one line.
//
// Thread-safe, but functions marked [disk] access files and must be called on the disk thread (or at the start).
class CheckpointStore {
 public:
  // A reference to a checkpoint keeps its files.
  using Ptr = CheckpointPtr;

  // With `only_looks`, the checkpoints belong to another server, which writes them: scan() removes nothing, and says
  // nothing of what it cannot read.
  explicit CheckpointStore(std::shared_ptr<CheckpointStorage> storage, bool only_looks = false)
      : storage_(std::move(storage)), only_looks_(only_looks), space_(std::make_shared<CheckpointSpace>()) {}

  using PathSet = std::unordered_set<std::string>;
  // [disk] Fills the index. `kept` has the paths (tinker://...) of the ephemeral checkpoints to keep; null: all. A
  // checkpoint that cannot be read is skipped with a warning.
  void scan(const PathSet* kept);

  // Finds a checkpoint that the user may read: an own or a public one. Returns kNotFound for others.
  Result<Ptr> find_readable(const UserId& user, std::string_view path) const;
  // The same for those that can be loaded and sampled. Returns kInvalidArgument for external ones.
  Result<Ptr> find_visible(const UserId& user, std::string_view path) const;
  // Finds a checkpoint that the user owns. Returns kPermissionDenied for a public one of another user, else kNotFound.
  Result<Ptr> find_owned(const UserId& user, const CheckpointPath& path) const;
  bool exists(const CheckpointPath& path) const;
  // Finds a checkpoint of any user; null if there is none.
  Ptr find(const std::string& path) const { return lists_.find(path); }
  const CheckpointLists& lists() const { return lists_; }
  // Returns `prefix` with the first unused number from `*counter` on, e.g. "checkpoint-0001", and advances `*counter`.
  std::string free_name(const RunId& run, CheckpointKind kind, std::string_view prefix, int* counter) const;
  // Returns the space of the user's checkpoints, including ephemeral ones, and deleted ones, of whomever, that the user
  // still uses.
  CheckpointUse used_by(const UserId& user) const { return space_->used_by(user); }
  int64_t used() const { return space_->used(); }
  std::unordered_map<UserId, int64_t> used_by_user() const { return space_->used_by_user(); }

  // The storage's own methods that a save or a copy needs before commit(), and discard() if there is no commit.
  CheckpointStorage& storage() const { return *storage_; }
  // [disk] Makes the files at `prepared` a checkpoint, which replaces one with the same path.
  Result<Ptr> commit(const std::filesystem::path& prepared, Checkpoint checkpoint);

  // [disk] Rewrites the metadata of this checkpoint. Returns kNotFound if it was deleted or replaced meanwhile.
  Result<Ptr> update(const Ptr& checkpoint, const std::function<void(Checkpoint&)>& change);
  // [disk] Removes this checkpoint: its name at once, its files when the last reference is released. Returns kNotFound
  // if it was deleted or replaced meanwhile.
  Status remove(const Ptr& checkpoint);
  // Removes the ephemeral checkpoint with this path and these files (null: they were not written), because its sampler
  // has ended; its bytes no longer count. Leaves another one that has its path by now.
  void forget(const CheckpointPath& path, const std::shared_ptr<const CheckpointFiles>& files);
  // [disk] Removes some of the files that are no longer referenced.
  void clean_up();
  bool needs_clean_up() const { return space_->has_unneeded() || storage_->needs_clean_up(); }

 private:
  void take(CheckpointStorage::Found found, const PathSet* kept);
  void skip(const CheckpointStorage::Found& found, const std::string& why) const;
  Ptr add(Checkpoint checkpoint, const std::filesystem::path& place);
  bool is_current(const Ptr& checkpoint) const;

  const std::shared_ptr<CheckpointStorage> storage_;
  const bool only_looks_;
  const std::shared_ptr<CheckpointSpace> space_;
  CheckpointLists lists_;
};

// Replaces the server's checkpoint directory `root` in the message of `error`, which a worker wrote and a client may
// read.
Error without_path(Error error, const std::filesystem::path& root);

}  // namespace tuft::control
