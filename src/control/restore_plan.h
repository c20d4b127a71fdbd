// What comes back after a restart, decided from the stored records and the checkpoints on disk. Pure: no file, no lock.
//
// A run comes back at the newest training checkpoint that it saved or loaded. What it did since then is lost with the
// process, so its numbering goes on after the checkpoint, and the results of those operations are gone: whoever asks is
// told what to do. Operations that were accepted and not finished did not happen, except a save whose checkpoint is
// there.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "control/checkpoint_store.h"
#include "control/persistence.h"
#include "control/records.h"

namespace tuft::control {

struct RestoredRun {
  RunRecord record;                 // next_seq_id agrees with the weights
  CheckpointStore::Ptr checkpoint;  // null: its first state
  bool lost = false;                // something that it did is not in the weights
};

struct RestorePlan {
  std::vector<SessionRecord> sessions;
  std::vector<RestoredRun> runs;
  std::vector<SamplerRecord> samplers;
  std::vector<FutureRecord> futures;  // finished; oldest first
  std::vector<FutureRecord> gone;     // failed with kGone
  std::vector<FutureRecord> settled;  // those of both whose stored record says something else
  uint64_t last_future_number = 0;
};

// What the plan asks of the checkpoints.
struct CheckpointIndex {
  std::function<CheckpointStore::Ptr(const std::string& path)> find;      // null: none
  std::function<CheckpointStore::Ptr(const RunId& run)> newest_training;  // by future number
};

RestorePlan plan_restore(StoredState state, const CheckpointIndex& checkpoints);

// The checkpoint of a record, if it is still the same one and not another under the same name.
CheckpointStore::Ptr same_checkpoint(const CheckpointRef& ref, const CheckpointIndex& checkpoints);

}  // namespace tuft::control
