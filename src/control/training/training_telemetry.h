// The spans, metrics, log events and usage of training.
#pragma once

#include "base/clock.h"
#include "control/accounts/usage.h"
#include "control/sessions/sessions.h"
#include "control/training/run.h"
#include "control/training/run_table.h"
#include "control/types/checkpoint.h"
#include "control/workers/model_backend.h"
#include "telemetry_store/store.h"

namespace tuft::control {

// Opens the operation's span training_controller.*, with what its payload tells. unload_model has no such span.
void start_operation_span(const Run& run, RunOperation& operation);
// The operation's turn has come: records how long it waited for it.
void record_turn(RunOperation& operation);
// A save or load has failed; nothing for other operations.
void record_checkpoint_failure(const RunOperation& operation, const Error& error);

// Records the operations that have succeeded. Thread-safe.
class TrainingTelemetry {
 public:
  // `tenant_label`: counts tokens by user, too (telemetry.tenant_label). `store` keeps the steps; null: nothing does.
  TrainingTelemetry(const Clock& clock, Usage& usage, bool tenant_label, telemetry_store::Store* store)
      : clock_(clock), usage_(usage), tenant_label_(tenant_label), store_(store) {}

  const Clock& clock() const { return clock_; }

  void record_created(const Run& run, const RunOperation& operation) const;
  void record_unloaded(const Run& run, const RunOperation& operation) const;
  // A forward or forward_backward.
  void record_pass(const Run& run, RunOperation& operation, const worker::v1::ForwardBackwardResponse& response) const;
  void record_optim_step(const Run& run, RunOperation& operation, const worker::v1::OptimStepResponse& response) const;
  // Puts the step into the store. Sampling of traces does not matter to it.
  void keep_step(const Run& run, const RunOperation& operation, const worker::v1::OptimStepResponse& response,
                 const StepSpan& span) const;
  void record_saved(const Run& run, const RunOperation& operation, const Checkpoint& saved) const;
  void record_loaded(const Run& run, const RunOperation& operation) const;

 private:
  const Clock& clock_;
  Usage& usage_;
  const bool tenant_label_;
  telemetry_store::Store* const store_;
};

}  // namespace tuft::control
