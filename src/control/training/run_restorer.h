// Brings runs back: their records after the server was restarted, and their adapters whenever a worker has become
// ready.
//
// With a complete journal (run_journal.h), a run is restored to the state that it had. Else it is restored to its
// restore point, the newest training checkpoint that it saved or loaded, or to its first state if it has none. What it
// did since then is lost. Its client is told once: by the operation that failed with the worker, or else by the next
// one, which fails with kDataLoss "weights_rolled_back".
//
// Users take turns at a worker, which restores kRestoreSlots runs at a time. A restore that fails for now, because the
// bucket of checkpoints is away, or the worker lacks memory or has too many calls, is begun again after kRestorePause,
// and the operations of the run wait. So is one for which there is no room for pages, if the base model has other
// workers. Meanwhile the run can be unloaded, once what waits before that is cancelled.
//
// A run whose restore point is gone or cannot be read never goes on from other weights by itself: its operations fail
// with kDataLoss "model_lost" until its user loads a checkpoint or unloads it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/result.h"
#include "control/persistence/persistence.h"
#include "control/persistence/restore_plan.h"
#include "control/training/lifetime.h"
#include "control/training/run_executor.h"
#include "control/training/run_expiry.h"
#include "control/training/run_replay.h"
#include "control/training/run_table.h"
#include "control/training/worker_calls.h"
#include "control/workers/model_backend.h"

namespace tuft::control {

// The runs that are restored together, for one line in the log: it is written when the last of them is done and lets
// go. Thread-safe.
class RestoreRound {
 public:
  explicit RestoreRound(std::string base_model) : base_model_(std::move(base_model)) {}
  ~RestoreRound();
  RestoreRound(const RestoreRound&) = delete;
  RestoreRound& operator=(const RestoreRound&) = delete;

  void note_restored(bool rolled_back) {
    ++restored_;
    if (rolled_back) ++rolled_back_;
  }

 private:
  const std::string base_model_;
  std::atomic<int64_t> restored_ = 0, rolled_back_ = 0;
};
using RestoreRoundPtr = std::shared_ptr<RestoreRound>;

// Thread-safe.
class RunRestorer {
 public:
  RunRestorer(const Clock& clock, const ModelBackends& backends, Persistence& persistence, RunTable& runs,
              RunExecutor& executor, const WorkerCalls& calls, RunExpiry& expiry, const Lifetime& lifetime)
      : clock_(clock),
        backends_(backends),
        persistence_(persistence),
        runs_(runs),
        executor_(executor),
        calls_(calls),
        expiry_(expiry),
        lifetime_(lifetime),
        replay_(clock, calls) {}

  // At the start of the server, before clients are heard: adds a run of the previous process. Its adapter follows when
  // its worker is ready. A run of a session that is gone begins to end. A run whose base model is not served any more
  // is left out, with a message in the log.
  void restore_run(const RestoredRun& restored);

  // The worker of `backend` is ready as `incarnation`: restores the adapters of its runs there and goes on with them. A
  // run whose adapter the worker refuses is broken: its operations fail with kDataLoss "model_lost".
  void on_worker_ready(const ModelBackendPtr& backend, uint64_t incarnation);

  // The run has moved to another worker, which serves: restores its adapter there and goes on with it.
  void on_moved(const RunPtr& run);

  // Restores the run if on_worker_ready() missed it: its adapter was created in a life of the worker that ended before
  // its answer was handled here, or its restore was cut off, or it executed an operation, which may save it.
  void go_on(const RunPtr& run);

 private:
  struct Restore;
  using RestorePtr = std::shared_ptr<const Restore>;

  // Queues the restore of the run if it needs one in this life of the worker.
  void queue(const RunPtr& run, const ModelBackendPtr& worker, uint64_t incarnation, const RestoreRoundPtr& round);
  bool start(const RunPtr& run, uint64_t incarnation, const RestoreRoundPtr& round);
  void create_adapter(const RestorePtr& restore);
  void load_weights(const RestorePtr& restore);
  void repeat(const RestorePtr& restore);
  void wait_for_room(const Restore& restore);
  void begin_again(const RestorePtr& restore, const Error& error);
  void finish(const Restore& restore);
  void refuse(const Restore& restore, const std::string& checkpoint, const std::string& why);
  void give_up(const Restore& restore, const Error& error);

  const Clock& clock_;
  const ModelBackends& backends_;
  Persistence& persistence_;
  RunTable& runs_;
  RunExecutor& executor_;
  const WorkerCalls& calls_;
  RunExpiry& expiry_;
  const Lifetime& lifetime_;
  const RunReplay replay_;
};

}  // namespace tuft::control
