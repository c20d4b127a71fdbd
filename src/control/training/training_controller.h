// Training runs: this is the one place that makes the objects of training and connects them.
//
//   RunSubmissions      checks and admits what clients ask for
//   RunTable            which runs there are, and how many a user may have
//   RunExecutor         executes the operations of a run in order, one at a time
//   TrainingOperations  create_model, unload_model, forward, forward_backward, optim_step
//   CheckpointSaver     save_weights, save_weights_for_sampler
//   CheckpointWriter    the one path of a checkpoint to the disk
//   CheckpointLoader    load_weights
//   RunResumption       goes on with runs whose worker comes back with their adapters
//   RunJournals         keeps what runs did since their restore points
//   RunReplay           does it again at another worker
//   RunRestorer         restores runs after a restart of the server or of a worker
//   WorkerDrain         saves the runs of a worker that was told to end
//   RunPlacement        moves runs between the workers of a base model
//   RunExpiry           ends the runs of sessions that end
//   TrainingTelemetry, ActivityLog  spans, metrics, log events and usage
//   WorkerCalls         calls to workers, and their answers
#pragma once

#include <memory>

#include "control/training/activity_log.h"
#include "control/training/checkpoint_saver.h"
#include "control/training/custom_losses.h"
#include "control/training/run_expiry.h"
#include "control/training/run_placement.h"
#include "control/training/run_restorer.h"
#include "control/training/run_resumption.h"
#include "control/training/run_submissions.h"
#include "control/training/training_operations.h"
#include "control/training/worker_drain.h"

namespace tuft::control {

// Thread-safe. It knows more than six others because it has no other task than to connect them. Answers of workers that
// come after its end are dropped (lifetime.h).
class TrainingController {
 public:
  struct Parts {
    std::shared_ptr<void> owner;  // of all the following; held, so that they live as long as this
    const config::ServerConfig& config;
    const Clock& clock;
    const ModelBackends& backends;
    Sessions& sessions;
    FutureStore& futures;
    CheckpointStore& checkpoints;
    DiskWorker& disk;
    Persistence& persistence;
    Usage& usage;
    std::shared_ptr<SamplingController> sampling;
    telemetry_store::Store* telemetry = nullptr;  // null: steps are not kept
  };
  static std::shared_ptr<TrainingController> create(const Parts& parts);
  TrainingController(const TrainingController&) = delete;
  TrainingController& operator=(const TrainingController&) = delete;

  RunSubmissions& submissions() { return submissions_; }
  CustomLosses& custom_losses() { return custom_losses_; }
  const RunTable& runs() const { return runs_; }
  RunRestorer& restorer() { return restorer_; }
  RunResumption& resumption() { return resumption_; }
  RunExpiry& expiry() { return expiry_; }
  WorkerDrain& drain() { return drain_; }
  RunPlacement& placement() { return placement_; }
  RunExecutor& executor() { return executor_; }
  ActivityLog& activity() { return activity_; }

 private:
  explicit TrainingController(const Parts& parts);

  const Parts parts_;
  Lifetime lifetime_;
  RunTable runs_;
  TrainingTelemetry telemetry_;
  CutCalls cut_;
  WorkerCalls calls_;
  RunExecutor executor_;
  const RunJournals journals_;
  CheckpointWriter writer_;
  CheckpointSaver saver_;
  CheckpointLoader loader_;
  TrainingOperations operations_;
  RunExpiry expiry_;
  RunRestorer restorer_;
  RunResumption resumption_;
  WorkerDrain drain_;
  RunPlacement placement_;
  CustomLosses custom_losses_;
  RunSubmissions submissions_;
  ActivityLog activity_;
};

}  // namespace tuft::control
