// The training runs of the server, by id and by user, and the limit of runs per user. A run whose session has ended
// counts until it is gone: its worker has removed it, or has ended or lost its connection.
//
// A user sees only their own runs: an unknown run and another user's run give the same kNotFound.
#pragma once

#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "control/checkpoints/checkpoint_store.h"
#include "control/sessions/sessions.h"
#include "control/training/run.h"
#include "control/types/types.h"

namespace tuft::control {

// Thread-safe. Its lock is innermost: nothing else is locked while it is held.
class RunTable {
 public:
  // `runs_per_user_max`: limits.runs_per_user_max.
  RunTable(int runs_per_user_max, Sessions& sessions, const CheckpointStore& checkpoints)
      : runs_per_user_max_(runs_per_user_max), sessions_(sessions), checkpoints_(checkpoints) {}

  // A request is to create `run`: adds it, or returns the run that already has its id. At the limit it first ends one
  // idle session of the user, unless runs of the user end already, and passes over runs whose worker may hold them and
  // does not answer. kResourceExhausted if that makes no room at once; a repetition finds room when the runs that end
  // are gone.
  Result<RunPtr> add(const RunPtr& run);
  // The request has been decided; call once for each run that add() returned. `is_admitted`: its operation creates the
  // run. Returns true if the caller has to close the run: it is new, and this was the last of the requests that had got
  // it, all of them refused. Then nobody finds it by its id any more.
  bool end_creation(const RunPtr& run, bool is_admitted);
  // Adds a run of the server's previous process, also beyond the limit. Returns false if its id is taken.
  bool restore(const RunPtr& run);
  // The run is gone, and does not count any more.
  void remove(const RunPtr& run);

  // Returns the user's run. kNotFound: see unknown(); also for a run whose session ends.
  Result<RunPtr> find(const UserId& user, const RunId& run) const;
  // Returns true if the run was unloaded and has checkpoints.
  bool has_left_checkpoints(const RunId& run) const;
  // The error for a run that is not there. It tells the user's own runs why, and which checkpoint is the newest.
  Error unknown(const UserId& user, const RunId& run) const;
  Result<ModelInfo> get_info(const UserId& user, const RunId& run) const;

  // Returns the run, whoever it belongs to, also one whose session ends; null if there is none. Not for clients.
  RunPtr of_any_user(const RunId& run) const;
  // Returns whether a restart would restore the checkpoint's own run from it.
  bool restores_from(const Checkpoint& checkpoint) const;
  // The sweep looks only at runs that are attended, so that a run at rest costs it nothing. Whoever ends the rest of a
  // run (Run::is_at_rest_locked()) calls this, under the same lock.
  void attend_locked(const RunPtr& run) TUFT_REQUIRES(run->mutex);
  // Returns the attended runs. The caller gives each of them back with still_attend().
  std::vector<RunPtr> take_attended();
  // The run stays attended unless it is at rest.
  void still_attend(const RunPtr& run);
  // Returns all runs, for lists. They include runs whose session ends.
  std::vector<RunPtr> all() const;
  std::vector<RunPtr> of_session(const UserId& user, const SessionId& session) const;
  std::vector<RunSummary> runs_of(const UserId& user) const;
  // Returns nothing if the run does not exist or belongs to another user.
  std::optional<RunSummary> run_of(const UserId& user, const RunId& run) const;

 private:
  RunPtr find_any(const UserId& user, const RunId& run) const;
  std::vector<RunPtr> of_user(const UserId& user) const;
  bool end_idle_session(const std::vector<RunPtr>& own);
  bool insert_locked(const RunPtr& run) TUFT_REQUIRES(mutex_);
  void erase_locked(const Run& run) TUFT_REQUIRES(mutex_);

  const int runs_per_user_max_;
  Sessions& sessions_;
  const CheckpointStore& checkpoints_;
  mutable Mutex mutex_;
  std::unordered_map<RunId, RunPtr> runs_ TUFT_GUARDED_BY(mutex_);
  struct Creation {
    int requests = 0;          // between add() and end_creation()
    bool is_admitted = false;  // one of them, or one before them
  };
  std::unordered_map<RunPtr, Creation> creations_ TUFT_GUARDED_BY(mutex_);
  // Of users that have runs.
  std::unordered_map<UserId, std::unordered_set<RunPtr>> by_user_ TUFT_GUARDED_BY(mutex_);
  std::vector<RunPtr> attended_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::control
