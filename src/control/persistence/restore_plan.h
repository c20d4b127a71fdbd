// Decides what is restored after a restart, from the stored records and the checkpoints on disk. Pure functions: no
// file, no lock.
//
// A run is restored from the newest training checkpoint that it saved or loaded. Everything it did afterwards is lost
// with the process: its numbering continues after the checkpoint, and the results of later operations are gone, with an
// error that says what to do. An operation that was accepted but not finished did not happen, except a named save whose
// checkpoint exists.
//
// A run whose worker may hold it still is not decided here: it stays as it was, and its operations that were not
// finished stay pending (control/training/run_resumption.h).
//
// A checkpoint that is not there, because it was deleted or replaced or cannot be read, is passed over for the newest
// that the run saved itself. A run that has no other keeps pointing at it, and is refused until its user decides: it
// never goes on from weights that nobody asked for, and comes back if the checkpoint does.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/persistence/persistence.h"
#include "control/persistence/records.h"
#include "control/types/checkpoint.h"

namespace tuft::control {

// What becomes of a run that a worker may hold if none does.
struct RunFallback {
  RunRecord record;
  bool lost = false;
  std::vector<FutureRecord> settled;  // its operations whose stored record then differs
};

struct RestoredRun {
  RunRecord record;          // next_seq_id agrees with the weights
  CheckpointPtr checkpoint;  // null: its first state, or, if the record has a restore point, one that is not there
  bool lost = false;         // the weights lack something that it did
  // A worker may hold it: its operations that were not finished, in the order of execution, and what if none does.
  std::vector<FutureRecord> unfinished = {};
  std::vector<int64_t> finished_seq_ids = {};       // beyond the first of those: of saves whose result was not recorded
  std::shared_ptr<RunFallback> fallback = nullptr;  // null: no worker holds it

  bool hopes() const { return fallback != nullptr; }
};

struct RestorePlan {
  std::vector<SessionRecord> sessions;
  std::vector<RestoredRun> runs;
  std::vector<SamplerRecord> samplers;  // the oldest first: until they are used, they count as used in this order
  std::vector<FutureRecord> futures;    // finished; oldest first
  std::vector<FutureRecord> gone;       // failed with kGone
  std::vector<FutureRecord> settled;    // of both: those whose stored record differs
  uint64_t last_future_number = 0;
};

// Access to the checkpoints on disk.
struct CheckpointIndex {
  std::function<CheckpointPtr(const std::string& path)> find;      // null: none
  std::function<CheckpointPtr(const RunId& run)> newest_training;  // by future number
  std::function<CheckpointPtr(const RunId& run, uint64_t future_number)> saved_by;
};

// Gives the sampling sessions that follow one run (follow_key()) the checkpoint of the newest save among them: a save
// writes only the record of its own sampling session. Returns the records that this changed, which are to be stored.
std::vector<SamplerRecord> follow_newest(std::vector<SamplerRecord>& samplers);

// `may_be_held`: tells whether a worker may hold the run still; empty: none does.
RestorePlan plan_restore(StoredState state, const CheckpointIndex& checkpoints,
                         const std::function<bool(const RunRecord&)>& may_be_held = {});

// The same for a view (Persistence::open_view), whose leader has undone nothing: every result is there, and no
// unfinished operation is gone.
RestorePlan plan_view(StoredState state, const CheckpointIndex& checkpoints);

// Returns the checkpoint of a record; null if it is gone or another one has its name now.
CheckpointPtr same_checkpoint(const CheckpointRef& ref, const CheckpointIndex& checkpoints);

}  // namespace tuft::control
