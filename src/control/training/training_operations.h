// Executes the operations that need nothing but the worker: create_model, unload_model, forward, forward_backward and
// optim_step. Each is one request to the worker; its answer ends the operation.
#pragma once

#include "base/result.h"
#include "control/training/checkpoint_loader.h"
#include "control/training/run_executor.h"
#include "control/training/run_journals.h"
#include "control/training/training_telemetry.h"
#include "control/training/worker_calls.h"

namespace tuft::control {

// Thread-safe.
class TrainingOperations final : public OperationHandler {
 public:
  // `loader` executes the second half of a load_weights that creates its model.
  TrainingOperations(RunExecutor& executor, const WorkerCalls& calls, const TrainingTelemetry& telemetry,
                     CheckpointLoader& loader, const RunJournals& journals)
      : executor_(executor), calls_(calls), telemetry_(telemetry), loader_(loader), journals_(journals) {}

  void start(const RunPtr& run, const OperationPtr& operation) override;

 private:
  Nanos time_in_worker(const RunOperation& operation, Nanos waited) const;
  void create(const RunPtr& run, const OperationPtr& operation);
  void unload(const RunPtr& run, const OperationPtr& operation);
  void forward_backward(const RunPtr& run, const OperationPtr& operation);
  void optim_step(const RunPtr& run, const OperationPtr& operation);
  void on_created(const RunPtr& run, const OperationPtr& operation, Result<worker::v1::CreateAdapterResponse> result);
  void on_unloaded(const RunPtr& run, const OperationPtr& operation, Result<worker::v1::RemoveAdapterResponse> result);
  void on_passed(const RunPtr& run, const OperationPtr& operation, Result<worker::v1::ForwardBackwardResponse> result);
  void on_stepped(const RunPtr& run, const OperationPtr& operation, Result<worker::v1::OptimStepResponse> result);

  RunExecutor& executor_;
  const WorkerCalls& calls_;
  const TrainingTelemetry& telemetry_;
  CheckpointLoader& loader_;
  const RunJournals& journals_;
};

}  // namespace tuft::control
