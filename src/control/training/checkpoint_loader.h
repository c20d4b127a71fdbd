// Executes load_weights: the worker loads a checkpoint into the adapter of a run.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "control/checkpoints/checkpoint_store.h"
#include "control/training/run_executor.h"
#include "control/training/training_telemetry.h"
#include "control/training/worker_calls.h"

namespace tuft::control {

// The error of a load whose optimizer state is of another optimizer than the run's. It names both.
Error other_optimizer(const Checkpoint& checkpoint, Optimizer optimizer);

// Thread-safe.
class CheckpointLoader final : public OperationHandler {
 public:
  // `directory`: the server's checkpoint directory, which error messages for clients do not show.
  CheckpointLoader(const std::filesystem::path& directory, const CheckpointStore& checkpoints, RunExecutor& executor,
                   const WorkerCalls& calls, const TrainingTelemetry& telemetry)
      : directory_(directory), checkpoints_(checkpoints), executor_(executor), calls_(calls), telemetry_(telemetry) {}

  // Returns the checkpoint that `load` names: one of the user, a public one, or one of the user whose API key came as
  // weights_access_token. kNotFound.
  Result<CheckpointPtr> find(const UserId& user, const LoadWeights& load) const;

  // The checkpoint must have the shape of the run's adapter ("checkpoint_mismatch"), and an optimizer state if that is
  // to be loaded ("no_optimizer_state"), which is of the run's optimizer ("optimizer_mismatch"). It becomes the run's
  // restore point. A run that was created for this load is closed again if the load fails.
  void start(const RunPtr& run, const OperationPtr& operation) override;

 private:
  void on_loaded(const RunPtr& run, const OperationPtr& operation, Result<worker::v1::LoadStateResponse> result);
  void fail(const RunPtr& run, const OperationPtr& operation, Error error);

  const std::filesystem::path& directory_;
  const CheckpointStore& checkpoints_;
  RunExecutor& executor_;
  const WorkerCalls& calls_;
  const TrainingTelemetry& telemetry_;
};

}  // namespace tuft::control
