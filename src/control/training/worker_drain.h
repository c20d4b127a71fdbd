// Empties a worker that was told to end, so that nothing is lost with it: each run goes on to the end of its step, is
// saved, and waits; then the worker is let go, and the runs come back at another worker (run_placement.h) or in the
// next life of this one (run_restorer.h) from what was saved, with the same weights and moments.
//
// A checkpoint holds no gradient. A run that has one when three quarters of the worker's time are over is saved all the
// same, nothing of it starts any more, and its client is told that it goes back to the end of the step before. A save
// that fails is tried again each second; where the worker stays, when the run has had four times as long as the save
// took. No quota stops it: what is saved so expires after a day, or later, when its run has another restore point or is
// gone (RunTable::restores_from()).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "control/checkpoints/checkpoint_store.h"
#include "control/training/run.h"
#include "control/training/run_executor.h"
#include "control/training/run_table.h"
#include "control/workers/model_backend.h"

namespace tuft::control {

// Thread-safe.
class WorkerDrain {
 public:
  WorkerDrain(const Clock& clock, RunTable& runs, RunExecutor& executor, const CheckpointStore& checkpoints)
      : clock_(clock), runs_(runs), executor_(executor), checkpoints_(checkpoints) {}

  // The worker of `backend` ends in its life `incarnation` after `limit`.
  void begin(const ModelBackendPtr& backend, uint64_t incarnation, Nanos limit);
  // Saves the run if its worker ends, or it leaves it, or its journal is long (run_journal.h), and it is at the end of
  // a step.
  void go_on(const RunPtr& run);
  // Lets workers go that hold nothing any more, or whose time is over.
  void sweep();

 private:
  struct Drain {
    ModelBackendPtr backend;
    uint64_t incarnation = 0;
    Nanos began = 0, until = 0;
  };
  // Returns whether no gradient of the run is waited for any more.
  bool may_save_locked(const Run& run) const TUFT_REQUIRES(run.mutex);
  bool needs_save(Run& run) const;
  std::string name_of_servers_save(Run& run) const;
  bool is_empty(const ModelBackend& backend) const;
  void let_go(const Drain& drain, bool is_empty);

  const Clock& clock_;
  RunTable& runs_;
  RunExecutor& executor_;
  const CheckpointStore& checkpoints_;
  mutable Mutex mutex_;
  std::vector<Drain> drains_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::control
