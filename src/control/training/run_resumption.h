// Lets runs go on at a worker that comes back with their adapters: its connection broke, or the server was started
// again, or another server leads in its place. Such a worker has kept the answers of the last calls as well
// (worker/kept_calls.h), so an operation that was running finishes once, and no checkpoint is loaded.
//
// A run goes on if the worker knows the last operation whose result the server has (Run::last_operation), and if the
// server knows every operation that the worker executed after it. Else the run is restored from its newest checkpoint,
// like one whose worker was lost, and its client is told (run_restorer.h).
//
// After a restart of the server the runs of joined workers wait for their worker, at most kHope. Their operations that
// had not finished wait as well. The requests are gone, so that an operation which no worker has begun fails then.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "control/futures/future_store.h"
#include "control/training/cut_calls.h"
#include "control/training/lifetime.h"
#include "control/training/run_executor.h"
#include "control/training/run_restorer.h"
#include "control/training/run_table.h"
#include "control/workers/model_backend.h"

namespace tuft::control {

// Thread-safe.
class RunResumption {
 public:
  static constexpr Nanos kHope = 10 * kSecond;

  struct Parts {
    const Clock& clock;
    FutureStore& futures;
    RunTable& runs;
    RunExecutor& executor;
    RunRestorer& restorer;
    CutCalls& cut;
    const Lifetime& lifetime;
    Persistence& persistence;
  };
  explicit RunResumption(const Parts& parts) : parts_(parts) {}

  // At the start of the server: the run waits for a worker that holds its adapter, and its unfinished operations for
  // their answers. Requires restored.hopes().
  void hope(const RestoredRun& restored);

  // The worker of `backend` is ready as `incarnation` and holds this: goes on with the runs that can go on, takes the
  // others away from it, and restores what lives there. Requires: called once in each life. A second list would name
  // what is being restored by then.
  void on_worker_ready(const ModelBackendPtr& backend, uint64_t incarnation,
                       const worker::v1::ListHoldingsResponse& holdings);

  // Fails the operation for whose answer the run waits, unless its worker is there again: then that answer counts. This
  // is decided under the run's lock: a worker that comes back later does not go on with what was reported failed.
  void give_up(const RunPtr& run);
  // Ends what was waited for in vain.
  void sweep();
  // Fails what waits.
  void shut_down();

 private:
  class Rest;
  using Held = worker::v1::HeldAdapter;

  // Returns whether the run goes on at `worker`, or is there already.
  bool take_over(const RunPtr& run, const ModelBackendPtr& worker, uint64_t incarnation, const Held& held);
  // Returns why the run cannot go on with what the worker holds of it; empty if it can, once `unstored` are added.
  static std::string_view obstacle_locked(Run& run, const Held& held, std::vector<worker::v1::HeldCall>& unstored)
      TUFT_REQUIRES(run.mutex);
  // Returns the calls that came after those whose results the server has; nothing if it lacks some.
  static std::optional<std::vector<const worker::v1::HeldCall*>> newer_calls_locked(const Run& run, const Held& held)
      TUFT_REQUIRES(run.mutex);
  // Returns whether the server knows the operation of a newer call, or needs not to. A client may have sent the
  // operation again to a new process of the server: then it becomes the one that the worker has.
  static bool is_known_locked(Run& run, const worker::v1::HeldCall& call) TUFT_REQUIRES(run.mutex);
  // Adds the operations that a former server process gave to the worker before it could store them.
  bool add_unstored(const RunPtr& run, const std::vector<worker::v1::HeldCall>& calls);
  OperationPtr resumed(const Run& run, FuturePtr future) const;
  void go_on(const RunPtr& run, uint64_t incarnation);
  bool is_unsure(const Run& run, uint64_t incarnation) const;
  void remove(const ModelBackendPtr& worker, uint64_t incarnation, const std::string& adapter,
              const std::shared_ptr<Rest>& rest) const;
  // Nothing is in the worker but what goes on there.
  void cleared(const ModelBackendPtr& worker, uint64_t incarnation);
  void end_hopes();
  // No worker holds the run: it becomes what a restart would have made of it.
  void fall_back(const RunPtr& run, const RunFallback& fallback);
  void enqueue_again(const RunPtr& run, const OperationPtr& operation);

  const Parts parts_;
  Mutex mutex_;
  struct Hope {
    RunPtr run;
    std::shared_ptr<RunFallback> fallback;
  };
  std::vector<Hope> hopes_ TUFT_GUARDED_BY(mutex_);
  Nanos hope_until_ TUFT_GUARDED_BY(mutex_) = 0;
};

}  // namespace tuft::control
