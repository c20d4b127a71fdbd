// The checkpoints of the server: an index in memory that answers at once, and the files behind it.
//
//   <checkpoint_dir>/<run folder>/<weights|sampler_weights>/<name>[~N]/metadata.json + what the worker writes
//
// A directory appears whole, by a rename, and never moves. A checkpoint that replaces another gets a directory of its
// own (~2, ~3, ...): the highest counts. Where a checkpoint is deleted or replaced, its metadata.json is renamed to
// deleted.json at once, so that no restart brings it back, and the rest goes with the last who reads it. What a server
// that died left behind - unfinished, deleted, replaced, ephemeral - is removed at the next start; a directory that is
// none of these and no checkpoint is left alone. The checkpoint directory belongs to one server at a time; what other
// programs add is seen at the next start.
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

#include "base/mutex.h"
#include "base/result.h"
#include "control/checkpoint.h"
#include "control/checkpoint_files.h"
#include "control/checkpoint_lists.h"
#include "control/page.h"

namespace tuft::control {

// The index is thread-safe. Functions marked [disk] touch files: call them from the disk thread (or at start).
class CheckpointStore {
 public:
  // Whoever holds it keeps its files.
  using Ptr = CheckpointPtr;

  explicit CheckpointStore(std::filesystem::path root)
      : root_(std::move(root)), space_(std::make_shared<CheckpointSpace>()) {}

  // Which ephemeral checkpoints are still wanted. By path (tinker://...); null: all.
  using PathSet = std::unordered_set<std::string>;
  // [disk] Fills the index. A checkpoint that cannot be read is left out with a warning; the rest still counts.
  void scan(const PathSet* kept);

  // What the user may load or sample: their own and public ones. Unknown and foreign are the same kNotFound.
  Result<Ptr> find_visible(const UserId& user, std::string_view path) const;
  // What the user may change: kPermissionDenied for public ones of others, else the same kNotFound.
  Result<Ptr> find_owned(const UserId& user, const CheckpointPath& path) const;
  bool exists(const CheckpointPath& path) const;
  // Whoever it belongs to; null: there is none.
  Ptr find(const std::string& path) const;
  // The lists of checkpoint_lists.h.
  Ptr newest_training(const RunId& run) const;
  std::vector<Ptr> expired(Nanos wall) const;
  std::optional<RunHead> head(const RunId& run) const;
  std::optional<RunHead> public_head(const RunId& run) const;
  Page<Ptr> of_run(const RunId& run, const PageRequest& page) const;
  Page<Ptr> of_owner(const UserId& owner, const PageRequest& page) const;
  std::vector<Ptr> samplers_after(const UserId& owner, const Ptr& place, size_t count_max) const;
  std::vector<RunHead> runs_after(const UserId& owner, const CheckpointLists::RunPlace& place, size_t count_max) const;
  int64_t count_runs(const UserId& owner) const;
  std::vector<RunHead> runs_of_session(const UserId& owner, const SessionId& session) const;
  // "checkpoint-0001" and so on: `prefix` with the first number from `*counter` on that is free; moves the counter.
  std::string free_name(const RunId& run, CheckpointKind kind, std::string_view prefix, int* counter) const;
  // Bytes of all files of the user that are there: ephemeral ones and deleted ones in use, too.
  int64_t used_by(const UserId& user) const { return space_->used_by(user); }
  int64_t used() const { return space_->used(); }
  std::unordered_map<UserId, int64_t> used_by_user() const { return space_->used_by_user(); }

  // [disk] Where the worker shall write a checkpoint of `run` before it is published. Does not exist yet.
  Result<std::filesystem::path> prepare(const RunId& run, CheckpointKind kind) const;
  // [disk] Writes metadata.json into `prepared` and puts the directory into its place, instead of what has that name.
  Result<Ptr> publish(const std::filesystem::path& prepared, Checkpoint checkpoint);
  // [disk] What was prepared comes to nothing: removes it, and what a worker that died left beside it.
  void abandon(const std::filesystem::path& prepared) const;

  // [disk] Rewrites the metadata of exactly this checkpoint. kNotFound where it has gone meanwhile.
  Result<Ptr> update(const Ptr& checkpoint, const std::function<void(Checkpoint&)>& change);
  // [disk] Removes exactly this checkpoint: its name at once, its files with the last who holds them. kNotFound where
  // it has gone meanwhile.
  Status remove(const Ptr& checkpoint);
  // An ephemeral checkpoint whose sampler has gone; counts no more.
  void forget(const CheckpointPath& path);
  // [disk] Removes the files that nobody holds any more.
  void clean_up() const;
  bool needs_clean_up() const { return space_->has_unneeded(); }

 private:
  void scan_run(const std::filesystem::path& run_directory, const PathSet* kept);
  void scan_one(const std::filesystem::path& directory, CheckpointKind kind, const PathSet* kept);
  void discard(const std::filesystem::path& directory) const;
  std::filesystem::path place_of(const CheckpointPath& path, int version) const;
  Ptr add(Checkpoint checkpoint, const std::filesystem::path& directory);
  bool is_current(const Ptr& checkpoint) const;

  const std::filesystem::path root_;
  const std::shared_ptr<CheckpointSpace> space_;
  mutable Mutex mutex_;
  CheckpointLists lists_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::control
