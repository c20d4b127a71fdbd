// Index of all checkpoints of the server, in the orders of its queries. The cost of a query is proportional to its
// result, plus the logarithm of the number of checkpoints.
//
// All checkpoints of a run belong to one user. Ephemeral checkpoints are found by path but are in no list.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "control/types/checkpoint.h"
#include "control/types/page.h"
#include "control/types/ranked_set.h"
#include "control/types/types.h"

namespace tuft::control {

using CheckpointPtr = std::shared_ptr<const Checkpoint>;

// Describes a run by its checkpoints.
struct RunHead {
  RunId run;
  UserId owner;
  std::string last_saved;  // created_at of the newest checkpoint
  CheckpointPtr training;  // the one with the highest future number; null: none
  CheckpointPtr sampler;   // likewise
  CheckpointPtr external;  // likewise

  // Describes the run: the training checkpoint, or if there is none, another.
  const Checkpoint& describing() const { return *(training ? training : sampler ? sampler : external); }
};

// The checkpoints of a session's runs, without ephemeral ones.
struct SessionStorage {
  int64_t checkpoints = 0;
  int64_t bytes = 0;
};

// Thread-safe; its lock is innermost.
class CheckpointLists {
 public:
  // Adds a checkpoint, or replaces the one with its path.
  void put(const CheckpointPtr& checkpoint);
  // Removes the checkpoint with this path (tinker://...) and these files. Returns false if there is none, or another
  // one has the path by now.
  bool take(const std::string& path, const CheckpointFiles* files);

  // Finds a checkpoint by its path (tinker://...). Returns null if there is none.
  CheckpointPtr find(const std::string& path) const;
  CheckpointPtr newest_training(const RunId& run) const;
  // Returns the checkpoint of the run that the operation with this future number has saved; null if there is none.
  CheckpointPtr saved_by(const RunId& run, uint64_t future_number) const;
  // Returns at most `count_max` of the checkpoints that have expired, those that expired first, after `after`, which
  // need not exist any more; null: from the first.
  std::vector<CheckpointPtr> expired(Nanos wall, const CheckpointPtr& after, size_t count_max) const;

  // Empty if the run has no (public) checkpoint.
  std::optional<RunHead> head(const RunId& run) const;
  std::optional<RunHead> public_head(const RunId& run) const;
  // Oldest first.
  Page<CheckpointPtr> of_run(const RunId& run, const PageRequest& page, Listed listed = Listed::kAll) const;

  // Newest first.
  Page<CheckpointPtr> of_owner(const UserId& owner, const PageRequest& page, Listed listed = Listed::kAll) const;
  // Returns the sampler checkpoints that follow `after`, which need not exist any more; null: from the first. Newest
  // first.
  std::vector<CheckpointPtr> samplers_after(const UserId& owner, const CheckpointPtr& after, size_t count_max) const;

  // A position in the list of a user's runs, which is sorted by last_saved, latest first. The default is the start.
  using RunCursor = std::optional<std::pair<std::string, RunId>>;  // last_saved, run
  std::vector<RunHead> runs_after(const UserId& owner, const RunCursor& after, size_t count_max) const;
  int64_t count_runs(const UserId& owner) const;
  // Returns the runs in any order.
  std::vector<RunHead> runs_of_session(const UserId& owner, const SessionId& session) const;
  SessionStorage storage_of_session(const UserId& owner, const SessionId& session) const;

 private:
  struct Older {
    bool operator()(const CheckpointPtr& a, const CheckpointPtr& b) const;
  };
  struct Newer {
    bool operator()(const CheckpointPtr& a, const CheckpointPtr& b) const { return Older()(b, a); }
  };
  struct ByNumber {
    bool operator()(const CheckpointPtr& a, const CheckpointPtr& b) const;
  };
  using Kinds = std::array<std::set<CheckpointPtr, ByNumber>, kCheckpointKinds>;
  struct RunLists {
    UserId owner;
    RankedSet<CheckpointPtr, Older> all, loadable;
    Kinds of_kind, is_public;
    int64_t bytes = 0;  // of all
  };
  struct OwnerLists {
    RankedSet<CheckpointPtr, Newer> all, loadable;
    std::set<CheckpointPtr, Newer> samplers;
    std::set<std::pair<std::string, RunId>, std::greater<>> runs;
  };

  template <typename Visit>
  void visit_runs_locked(const UserId& owner, const SessionId& session, Visit visit) const TUFT_REQUIRES(mutex_);
  void list(const CheckpointPtr& checkpoint) TUFT_REQUIRES(mutex_);
  void unlist(const CheckpointPtr& checkpoint) TUFT_REQUIRES(mutex_);
  static std::string last_saved(const Kinds& kinds);
  static std::optional<RunHead> head_of(const RunId& run, const UserId& owner, const Kinds& kinds);

  mutable Mutex mutex_;
  std::unordered_map<std::string, CheckpointPtr> by_path_ TUFT_GUARDED_BY(mutex_);
  std::map<RunId, RunLists> runs_ TUFT_GUARDED_BY(mutex_);  // ordered, so that the runs of a session are adjacent
  std::unordered_map<UserId, OwnerLists> owners_ TUFT_GUARDED_BY(mutex_);
  std::set<std::pair<Nanos, std::string>> expiring_ TUFT_GUARDED_BY(mutex_);  // expiry (wall clock), path
};

}  // namespace tuft::control
