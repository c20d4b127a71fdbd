// Executes save_weights, save_weights_for_sampler and save_weights_external.
//
// save_weights_external: the worker writes the adapter (checkpoint_writer.h). save_weights: the worker writes the
// adapter and the optimizer state (checkpoint_writer.h); the checkpoint becomes the run's restore point.
// save_weights_for_sampler, if the base model samples: the worker first publishes the weights in its memory, then
// writes the file from that copy. The answer of an unnamed save comes before the file if the server keeps no state: it
// names nothing that must outlive the process. If the worker is disconnected before the answer, the save waits for it
// in CutCalls, and then begins again with another version: the adapter is the same as long as the operation runs.
#pragma once

#include "base/clock.h"
#include "base/result.h"
#include "control/persistence/persistence.h"
#include "control/sampling/sampling_controller.h"
#include "control/training/checkpoint_writer.h"
#include "control/training/cut_calls.h"
#include "control/training/run_executor.h"
#include "control/training/training_telemetry.h"
#include "control/training/worker_calls.h"

namespace tuft::control {

// At most one file of a run is written behind its answer at a time, and the next sampler save of the run waits for it:
// versions cannot pile up in the worker faster than the disk takes them. Thread-safe.
class CheckpointSaver final : public OperationHandler {
 public:
  struct Parts {
    const Clock& clock;
    Persistence& persistence;
    SamplingController& sampling;
    RunExecutor& executor;
    const WorkerCalls& calls;
    CutCalls& cut;
    const CheckpointWriter& writer;
    const TrainingTelemetry& telemetry;
  };
  explicit CheckpointSaver(const Parts& parts) : parts_(parts) {}

  void start(const RunPtr& run, const OperationPtr& operation) override;

 private:
  void publish(const RunPtr& run, const CheckpointSavePtr& save);
  void on_published(const RunPtr& run, const CheckpointSavePtr& save,
                    Result<worker::v1::PublishAdapterResponse> result);
  // A version of the run could not be published or saved.
  void fail_version(const RunPtr& run, const CheckpointSavePtr& save, Error error);
  void answer_before_file(const RunPtr& run, const CheckpointSavePtr& save);
  void write(const RunPtr& run, const CheckpointSavePtr& save);
  void on_written(const RunPtr& run, const CheckpointSavePtr& save, Result<CheckpointPtr> written);
  void on_written_behind(const RunPtr& run, const CheckpointSavePtr& save, const Result<CheckpointPtr>& written);
  Result<FutureValue> answer_of(const Run& run, const CheckpointSave& save, const CheckpointPtr& saved);

  const Parts parts_;
};

}  // namespace tuft::control
