#include "control/training/training_operations.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

namespace tuft::control {
namespace {

Nanos nanos_of(double seconds) {
  return static_cast<Nanos>(seconds * 1e9);
}

// What the client gets. JSON has no NaN.
std::map<std::string, double> metrics_of(const worker::v1::OptimStepResponse& response) {
  std::map<std::string, double> metrics = {{"learning_rate", response.learning_rate()},
                                           {"optimizer_step", static_cast<double>(response.step())}};
  if (std::isfinite(response.grad_norm())) metrics.emplace("grad_norm", response.grad_norm());
  if (response.nonfinite()) metrics.emplace("skipped", 1.0);
  return metrics;
}

}  // namespace

void TrainingOperations::start(const RunPtr& run, const OperationPtr& operation) {
  if (operation->creates_run) return create(run, operation);
  switch (operation->type) {
    case OperationType::kUnloadModel:
      return unload(run, operation);
    case OperationType::kOptimStep:
      return optim_step(run, operation);
    default:
      return forward_backward(run, operation);
  }
}

void TrainingOperations::create(const RunPtr& run, const OperationPtr& operation) {
  const actor::CallOptions options = calls_.begin_call("training_backend.create_adapter", *operation);
  run->backend()->actor().create_adapter(
      create_adapter_request(*run), options,
      calls_.answer_to<worker::v1::CreateAdapterResponse>(
          operation, [this, run, operation](auto result) { on_created(run, operation, std::move(result)); }));
}

void TrainingOperations::on_created(const RunPtr& run, const OperationPtr& operation,
                                    Result<worker::v1::CreateAdapterResponse> result) {
  if (!result.ok()) {
    // Closed before the future fails, so that a client that sees it fail can create another model within its limit.
    const Error& error = result.error();
    executor_.close(run, Error{error.code, "this model could not be created: " + error.message, error.reason});
    return executor_.conclude(run, operation, error);
  }
  {
    MutexLock lock(run->mutex);
    run->created = true;
    run->adapter_incarnation = operation->incarnation;
    run->target_modules.assign(result->target_modules().begin(), result->target_modules().end());
  }
  telemetry_.record_created(*run, *operation);
  if (operation->type == OperationType::kLoadWeights) return loader_.start(run, operation);
  executor_.conclude(run, operation, FutureValue(CreateModelResult{run->id}));
}

void TrainingOperations::unload(const RunPtr& run, const OperationPtr& operation) {
  actor::CallOptions options = calls_.begin_call("training_backend.remove_adapter", *operation);
  options.incarnation = 0;  // a run that could not be restored may have left an adapter in a later life
  run->backend()->actor().remove_adapter(
      remove_adapter_request(*run), options,
      calls_.answer_to<worker::v1::RemoveAdapterResponse>(
          operation, [this, run, operation](auto result) { on_unloaded(run, operation, std::move(result)); }));
}

void TrainingOperations::on_unloaded(const RunPtr& run, const OperationPtr& operation,
                                     Result<worker::v1::RemoveAdapterResponse> result) {
  // An adapter whose worker ended counts as removed.
  const bool gone = result.ok() || result.error().code == ErrorCode::kNotFound || actor::is_worker_lost(result.error());
  if (!gone) return executor_.conclude(run, operation, std::move(result).error());
  executor_.close(run, model_unloaded());
  telemetry_.record_unloaded(*run, *operation);
  executor_.conclude(run, operation, FutureValue(UnloadModelResult{run->id}));
}

void TrainingOperations::forward_backward(const RunPtr& run, const OperationPtr& operation) {
  auto& request = std::get<worker::v1::ForwardBackwardRequest>(operation->payload);
  const bool backward = operation->type == OperationType::kForwardBackward;
  const actor::CallOptions options = backward ? calls_.begin_call("training_backend.forward_backward", *operation)
                                              : calls_.begin_call("training_backend.forward", *operation);
  operation->loss_fn = request.request().loss_fn();
  request.set_tenant(run->user.str());
  operation->backend_span.set_attribute("tuft.data_count", request.request().data_size());
  // The operation keeps the request, for a worker that has to be asked again.
  calls_.execute<rpc::ForwardBackward>(
      run, operation, {operation, &request}, options,
      [this, run, operation](auto result) { on_passed(run, operation, std::move(result)); });
}

void TrainingOperations::on_passed(const RunPtr& run, const OperationPtr& operation,
                                   Result<worker::v1::ForwardBackwardResponse> result) {
  if (!result.ok()) return executor_.conclude(run, operation, std::move(result).error());
  telemetry_.record_pass(*run, *operation, *result);
  operation->waited = nanos_of(result->queue_seconds());
  if (operation->type == OperationType::kForwardBackward) {
    MutexLock lock(run->mutex);
    journals_.keep_locked(*run, *operation, time_in_worker(*operation, operation->waited));
    run->gradient_pending = true;
    run->step_clock.add_pass(result->has_loss_sum() ? std::optional(result->loss_sum()) : std::nullopt,
                             result->weight_sum(), result->tokens());
  }
  executor_.conclude(run, operation, FutureValue(ProtobufResult{std::move(*result->mutable_output())}));
}

Nanos TrainingOperations::time_in_worker(const RunOperation& operation, Nanos waited) const {
  return std::max<Nanos>(telemetry_.clock().monotonic() - operation.started - waited, 0);
}

void TrainingOperations::optim_step(const RunPtr& run, const OperationPtr& operation) {
  const auto request =
      std::make_shared<const worker::v1::OptimStepRequest>(optim_step_request(std::get<OptimStep>(operation->payload)));
  const actor::CallOptions options = calls_.begin_call("training_backend.optim_step", *operation);
  calls_.execute<rpc::OptimStep>(run, operation, request, options, [this, run, operation](auto result) {
    on_stepped(run, operation, std::move(result));
  });
}

void TrainingOperations::on_stepped(const RunPtr& run, const OperationPtr& operation,
                                    Result<worker::v1::OptimStepResponse> result) {
  if (!result.ok()) return executor_.conclude(run, operation, std::move(result).error());
  telemetry_.record_optim_step(*run, *operation, *result);
  const Nanos waited = nanos_of(result->queue_seconds());
  StepSpan span;
  {
    MutexLock lock(run->mutex);
    journals_.keep_locked(*run, *operation, time_in_worker(*operation, waited));
    run->weights_changed = true;
    run->gradient_pending = false;
    span = run->step_clock.end_step(waited, telemetry_.clock().monotonic());
  }
  telemetry_.keep_step(*run, *operation, *result, span);
  executor_.conclude(run, operation, FutureValue(OptimStepResult{metrics_of(*result)}));
}

}  // namespace tuft::control
