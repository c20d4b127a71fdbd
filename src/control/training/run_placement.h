// Which worker a run lives at, where a base model has several. A new run goes to the worker with the smallest share of
// the runs and of the recent training (Model::for_training()), and stays there. It moves
//
//   lost      when its worker is gone and no other has taken that place within kAway: it goes on from its newest
//             checkpoint, as after a restart of the worker;
//   drained   when its worker was told to end and has saved it (worker_drain.h);
//   balanced  when its worker has far more runs than another one, for instance because that one has just joined: it is
//             saved at the end of its step, and goes on with the same weights and moments. Then it stays for kRest at
//             least, so that users who make and end runs cannot keep those of others moving.
//
// An operation of a run that moves waits, and none is lost.
#pragma once

#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "control/training/run_executor.h"
#include "control/training/run_restorer.h"
#include "control/training/run_resumption.h"
#include "control/training/run_table.h"
#include "control/training/worker_drain.h"
#include "control/workers/model_backend.h"

namespace tuft::control {

// Thread-safe.
class RunPlacement {
 public:
  static constexpr Nanos kAway = 2 * kSecond;
  // A run that could not be saved in this time stays where it is.
  static constexpr Nanos kLeaveTime = 20 * kSecond;
  static constexpr Nanos kRest = Run::kRest;
  // A difference that was there for so long is levelled out.
  static constexpr Nanos kSteady = 2 * kSecond;

  RunPlacement(const Clock& clock, const ModelBackends& backends, RunTable& runs, RunExecutor& executor,
               WorkerDrain& drain, RunRestorer& restorer, RunResumption& resumption)
      : clock_(clock),
        backends_(backends),
        runs_(runs),
        executor_(executor),
        drain_(drain),
        restorer_(restorer),
        resumption_(resumption) {}

  // Moves the run if it leaves its worker and is saved.
  void go_on(const RunPtr& run);
  // Moves the runs of workers that are gone, and asks at most one run of each base model to leave for balance.
  void sweep();

 private:
  using Runs = std::vector<RunPtr>;
  enum class Reason : uint8_t { kLost, kDrained, kBalanced };

  static std::string_view name_of(Reason reason);
  // Returns whether something that is observed at every sweep, of a worker or a model, has been true for `limit`.
  bool has_lasted(const void* of, bool is_true, Nanos limit, Nanos now);
  void move_runs_of_gone_workers(const Model& model, const std::unordered_set<const ModelBackend*>& gone);
  // Goes on with a run that leaves, or lets it stay. Returns false if the run does not leave.
  bool go_on_leaving(const Model& model, Nanos now);
  void balance(const Model& model, Nanos now);
  // Returns the run of `worker` that leaves; null if none can.
  RunPtr choose(const Runs& runs, const ModelBackend& worker, int64_t difference) const;
  // Returns whether the run can leave `worker` for balance: at once, or at the end of its step.
  enum class CanLeave : uint8_t { kNo, kAtEndOfStep, kNow };
  CanLeave can_leave(const Run& run, const ModelBackend& worker, int64_t difference) const;
  // Moves the run to `to`; null: to the worker where there is most room. Does nothing if it cannot move now.
  void move(const RunPtr& run, Reason reason, ModelBackendPtr to = nullptr);

  const Clock& clock_;
  const ModelBackends& backends_;
  RunTable& runs_;
  RunExecutor& executor_;
  WorkerDrain& drain_;
  RunRestorer& restorer_;
  RunResumption& resumption_;
  Mutex mutex_;
  std::unordered_map<const void*, Nanos> true_since_ TUFT_GUARDED_BY(mutex_);
  std::unordered_map<const Model*, RunPtr> leaving_ TUFT_GUARDED_BY(mutex_);  // at most one of each base model
};

}  // namespace tuft::control
