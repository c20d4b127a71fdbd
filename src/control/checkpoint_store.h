// The checkpoints of the server: an index in memory that answers at once, and the files behind it.
//
//   <checkpoint_dir>/<run folder>/<weights|sampler_weights>/<name>/metadata.json + what the worker writes
//
// A checkpoint appears, and is replaced, in one step: it is written beside its place under a name that begins with a
// dot and then swapped in. What a server that died left under such names is removed at the next start, as are
// ephemeral checkpoints. The directory belongs to one server at a time; what other programs add is seen at the next
// start.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "control/checkpoint.h"

namespace tuft::control {

// The index is thread-safe. Functions marked [disk] touch files: call them from the disk thread (or at start).
class CheckpointStore {
 public:
  using Ptr = std::shared_ptr<const Checkpoint>;

  explicit CheckpointStore(std::filesystem::path root) : root_(std::move(root)) {}

  // [disk] Fills the index. A checkpoint that cannot be read is left out with a warning; the rest still counts. Of the
  // ephemeral ones only those stay whose path (tinker://...) is in `kept`.
  void scan(const std::unordered_set<std::string>& kept = {});

  // What the user may load or sample: their own and public ones. Unknown and foreign are the same kNotFound.
  Result<Ptr> find_visible(const UserId& user, std::string_view path) const;
  bool exists(const CheckpointPath& path) const;
  // Whoever it belongs to; null: there is none.
  Ptr find(const std::string& path) const;
  // The training checkpoint of the run that was saved last; null: it has none.
  Ptr newest_training(const RunId& run) const;
  // For lists, without ephemeral ones: of a run, oldest first; of a user, newest first.
  std::vector<Ptr> run_checkpoints(const RunId& run) const;
  std::vector<Ptr> owner_checkpoints(const UserId& owner) const;
  // "checkpoint-0001" and so on: `prefix` with the first number from `*counter` on that is free; moves the counter.
  std::string free_name(const RunId& run, CheckpointKind kind, std::string_view prefix, int* counter) const;

  std::filesystem::path directory_of(const CheckpointPath& path) const;

  // [disk] Where the worker shall write a checkpoint of `run` before it is published. Does not exist yet.
  Result<std::filesystem::path> prepare(const RunId& run, CheckpointKind kind) const;

  struct Published {
    Ptr checkpoint;
    // Where the replaced one lies now; empty when there was none. Whoever uses it no longer calls discard().
    std::filesystem::path replaced;
  };
  // [disk] Writes metadata.json into `prepared` and swaps the directory into its place.
  Result<Published> publish(const std::filesystem::path& prepared, Checkpoint checkpoint);

  // [disk] Removes files that nothing names any more. Only below the root; a failure is logged.
  void discard(const std::filesystem::path& directory) const;
  // Takes it out of the index; its directory is then for discard().
  void forget(const CheckpointPath& path);

 private:
  using PathSet = std::unordered_set<std::string>;

  void scan_run(const std::filesystem::path& run_directory, const PathSet& kept);
  void scan_one(const std::filesystem::path& directory, CheckpointKind kind, const PathSet& kept);

  const std::filesystem::path root_;
  mutable Mutex mutex_;
  std::unordered_map<std::string, Ptr> by_path_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::control
