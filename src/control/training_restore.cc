#include <utility>

#include "control/operation_keys.h"
#include "control/training_controller.h"
#include "telemetry/log.h"
#include "telemetry/metrics.h"

namespace tuft::control {

void TrainingController::on_worker_ready(const std::shared_ptr<ModelBackend>& backend, uint64_t generation) {
  for (const RunPtr& run : all_runs()) {
    if (run->backend == backend) restore(run, generation);
  }
}

// Nothing to do for a run whose adapter was never made: its create_model waits in the log and goes now.
void TrainingController::restore(const RunPtr& run, uint64_t generation) {
  bool needed = false;
  {
    MutexLock lock(run->mutex);
    needed = run->created && !run->closed && !run->ending && run->adapter_generation < generation &&
             run->restoring_generation < generation;
    if (needed) {
      run->restoring_generation = generation;
      run->broken.reset();
    }
  }
  if (!needed) return pump(run);
  const OperationKeys keys = keys_of(*run);
  auto span = std::make_shared<telemetry::Span>(training_backend_tracer().start_span(
      "training_backend.create_adapter",
      {.attributes = KeyAttributes(keys, {{"tuft.lora_id", run->id.str()}, {"tuft.restored", true}}), .parent = {}}));
  run->backend->actor().create_adapter(
      adapter_request(*run), {.trace = span->context(), .ids = call_ids(keys)},
      [weak = weak_from_this(), run, generation, span](const Result<worker::v1::CreateAdapterResponse>& result) {
        if (!result.ok()) span->record_error(result.error());
        span->end();
        const auto self = weak.lock();
        if (self == nullptr) return;
        if (!result.ok()) return self->break_run(run, generation, result.error());
        self->restore_weights(run, generation);
      });
}

void TrainingController::restore_weights(const RunPtr& run, uint64_t generation) {
  std::optional<RestorePoint> point;
  {
    MutexLock lock(run->mutex);
    point = run->restore_point;
  }
  if (!point) return finish_restore(run, generation, std::nullopt);
  const OperationKeys keys = keys_of(*run);
  auto span = std::make_shared<telemetry::Span>(training_backend_tracer().start_span(
      "training_backend.load_state",
      {.attributes = KeyAttributes(
           keys, {{"tuft.lora_id", run->id.str()}, {"tuft.optimizer", point->with_optimizer}, {"tuft.restored", true}}),
       .parent = {}}));
  worker::v1::LoadStateRequest request;
  request.set_adapter_id(run->id.str());
  request.set_directory(point->checkpoint->files->directory().string());
  request.set_with_optimizer(point->with_optimizer);
  run->backend->actor().load_state(std::move(request), {.trace = span->context(), .ids = call_ids(keys)},
                                   [weak = weak_from_this(), run, generation, span, checkpoint = point->checkpoint](
                                       const Result<worker::v1::LoadStateResponse>& result) {
                                     if (!result.ok()) span->record_error(result.error());
                                     span->end();
                                     const auto self = weak.lock();
                                     if (self == nullptr) return;
                                     if (result.ok()) return self->finish_restore(run, generation, std::nullopt);
                                     // A worker that died again comes back with another generation and another try.
                                     if (result.error().code == ErrorCode::kUnavailable)
                                       return self->break_run(run, generation, result.error());
                                     self->finish_restore(run, generation, result.error());
                                   });
}

// The adapter is back. What is lost is everything since the restore point; the client hears of it once, through the
// operation that the worker took with it or through the next one.
void TrainingController::finish_restore(const RunPtr& run, uint64_t generation,
                                        const std::optional<Error>& load_error) {
  std::vector<OperationPtr> dropped;
  std::optional<Error> loss;
  bool from_store = false;
  {
    MutexLock lock(run->mutex);
    if (run->restoring_generation != generation) return;
    const bool was_server = run->from_store;
    std::string to = "its first state: it had no checkpoint";
    if (load_error) {
      to = "its first state: its checkpoint could not be read again";
      run->restore_point.reset();
    } else if (run->restore_point) {
      to = "checkpoint " + run->restore_point->checkpoint->path.str();
      if (run->restore_point->seq_id) to += " (seq_id " + std::to_string(*run->restore_point->seq_id) + ")";
    }
    const bool lost = run->weights_changed || run->gradient_pending || load_error.has_value();
    if (lost && (!run->told_of_loss || load_error)) {
      const std::string what = was_server ? "the server" : "the worker of base model " + run->backend->name();
      loss = data_loss("not executed: " + what + " was restarted and this model went back to " + to +
                           "; what was trained since then must be trained again, or load another checkpoint",
                       "weights_rolled_back");
      dropped = run->log.drain();
      if (dropped.empty()) run->notice = loss;
    }
    run->adapter_generation = generation;
    run->restoring_generation = 0;
    run->weights_changed = false;
    run->gradient_pending = false;
    run->told_of_loss = false;
    from_store = std::exchange(run->from_store, false);
  }
  if (from_store) telemetry::get_metrics().restore_runs.add(1, {{"result", load_error ? "corrupted" : "ok"}});
  telemetry::log_warning("model.restored",
                         from_store ? "model brought back after the server was restarted"
                                    : "model brought back after its worker was restarted",
                         KeyAttributes(keys_of(*run), {{"tuft.rolled_back", loss.has_value()}}));
  for (const OperationPtr& operation : dropped) fail(run, operation, *loss);
  pump(run);
}

void TrainingController::break_run(const RunPtr& run, uint64_t generation, const Error& error) {
  bool from_store = false;
  {
    MutexLock lock(run->mutex);
    if (run->restoring_generation != generation) return;
    run->restoring_generation = 0;
    // Gone again: the next life of the worker tries again.
    if (error.code == ErrorCode::kUnavailable) return;
    from_store = std::exchange(run->from_store, false);
    run->broken = data_loss("this model could not be brought back after its worker was restarted: " + error.message,
                            "model_lost");
  }
  if (from_store) telemetry::get_metrics().restore_runs.add(1, {{"result", "corrupted"}});
  telemetry::log_error("model.corrupted", error.message, KeyAttributes(keys_of(*run)));
  pump(run);
}

}  // namespace tuft::control
