// The checkpoints of the server: an index in memory, and the files.
//
// The room checkpoints/ promises: a checkpoint is complete or absent, after a crash too; its files exist as long as
// anyone reads them; no user can find, change or delete a checkpoint of another user that is not public.
//
//   <checkpoint_dir>/<run folder>/<weights|sampler_weights|external_weights>/<name>[~N]/metadata.json + what the worker
//   writes
//
// A directory appears completely, by a rename, and never moves. A checkpoint that replaces another gets its own
// directory
// (~2, ~3, ...); the highest number counts. When a checkpoint is deleted or replaced, its metadata.json is renamed to
// deleted.json at once, so that a restart does not restore it, and the other files are removed when the last reader is
// done. The next start removes what a killed server left: unfinished, deleted, replaced and ephemeral checkpoints.
// Other directories that are not checkpoints are left unchanged. Only one server may use the checkpoint directory at a
// time; checkpoints that other programs add are found at the next start.
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
#include "control/types/checkpoint.h"

namespace tuft::control {

// It has more than 25 methods: each question about checkpoints has one of its own, most of them one line.
//
// Thread-safe, but functions marked [disk] access files and must be called on the disk thread (or at the start).
class CheckpointStore {
 public:
  // A reference to a checkpoint keeps its files.
  using Ptr = CheckpointPtr;

  explicit CheckpointStore(std::filesystem::path root)
      : root_(std::move(root)), space_(std::make_shared<CheckpointSpace>()) {}

  using PathSet = std::unordered_set<std::string>;
  // [disk] Fills the index. `kept` has the paths (tinker://...) of the ephemeral checkpoints to keep; null: all. A
  // checkpoint that cannot be read is skipped with a warning.
  void scan(const PathSet* kept);
  // Returns whether scan() has skipped the checkpoint `path` (tinker://...).
  bool is_unreadable(std::string_view path) const;

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

  // [disk] Returns a path, which does not exist yet, where the worker writes a checkpoint of `run` before commit().
  Result<std::filesystem::path> prepare(const RunId& run, CheckpointKind kind) const;
  // [disk] Writes metadata.json into `prepared` and renames the directory to its final path. The checkpoint replaces
  // one with the same path.
  Result<Ptr> commit(const std::filesystem::path& prepared, Checkpoint checkpoint);
  // [disk] Puts the files of a checkpoint, without its metadata, into the new directory `prepared`. They share the disk
  // space of the source where the file system can link files; they never change.
  Status clone_files(const Checkpoint& source, const std::filesystem::path& prepared) const;
  // [disk] Removes a directory from prepare(), and the temporary files that a killed worker left beside it.
  void abandon(const std::filesystem::path& prepared) const;

  // [disk] Rewrites the metadata of this checkpoint. Returns kNotFound if it was deleted or replaced meanwhile.
  Result<Ptr> update(const Ptr& checkpoint, const std::function<void(Checkpoint&)>& change);
  // [disk] Removes this checkpoint: its name at once, its files when the last reference is released. Returns kNotFound
  // if it was deleted or replaced meanwhile.
  Status remove(const Ptr& checkpoint);
  // Removes an ephemeral checkpoint whose sampler has ended; its bytes no longer count.
  void forget(const CheckpointPath& path);
  // [disk] Removes files that are no longer referenced.
  void clean_up() const;
  bool needs_clean_up() const { return space_->has_unneeded(); }

 private:
  void scan_run(const std::filesystem::path& run_directory, const PathSet* kept);
  void scan_one(const std::filesystem::path& directory, CheckpointKind kind, const PathSet* kept);
  void skip(const std::filesystem::path& directory, const std::string& why);
  void discard(const std::filesystem::path& directory) const;
  std::filesystem::path directory_of(const CheckpointPath& path, int version) const;
  Ptr add(Checkpoint checkpoint, const std::filesystem::path& directory);
  bool is_current(const Ptr& checkpoint) const;

  const std::filesystem::path root_;
  const std::shared_ptr<CheckpointSpace> space_;
  CheckpointLists lists_;
  PathSet skipped_;  // directories without their version; written by scan() only
};

// Returns the error for clients when a file of a checkpoint cannot be written because the disk is full.
Error disk_is_full();

// Replaces the server's checkpoint directory `root` in the message of `error`, which a worker wrote and a client may
// read.
Error without_path(Error error, const std::filesystem::path& root);

}  // namespace tuft::control
