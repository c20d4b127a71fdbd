#include <cmath>
#include <utility>

#include "control/operation_keys.h"
#include "control/training_answers.h"
#include "control/training_controller.h"
#include "telemetry/log.h"
#include "telemetry/metrics.h"

namespace tuft::control {
namespace {

bool is_at_least_zero(double value) {
  return std::isfinite(value) && value >= 0;
}
bool is_decay(double value) {
  return std::isfinite(value) && value >= 0 && value < 1;
}

std::optional<Error> refusal_of_step(const OptimStep& step) {
  const auto refuse = [](const char* what) { return invalid_argument(std::string(what), "invalid_adam_params"); };
  if (!is_at_least_zero(step.learning_rate)) return refuse("adam_params.learning_rate must be a number >= 0");
  if (!is_decay(step.beta1)) return refuse("adam_params.beta1 must be at least 0 and less than 1");
  if (!is_decay(step.beta2)) return refuse("adam_params.beta2 must be at least 0 and less than 1");
  if (!is_at_least_zero(step.eps)) return refuse("adam_params.eps must be a number >= 0");
  if (!is_at_least_zero(step.weight_decay)) return refuse("adam_params.weight_decay must be a number >= 0");
  if (!is_at_least_zero(step.grad_clip_norm)) return refuse("adam_params.grad_clip_norm must be a number >= 0");
  return std::nullopt;
}

}  // namespace

const telemetry::Tracer& training_backend_tracer() {
  static const telemetry::Tracer instance = telemetry::get_tracer("tuft.training_backend");
  return instance;
}

worker::v1::CreateAdapterRequest adapter_request(const Run& run) {
  worker::v1::CreateAdapterRequest request;
  request.set_adapter_id(run.id.str());
  worker::v1::LoraSpec& spec = *request.mutable_spec();
  spec.set_rank(run.lora.rank);
  spec.set_alpha(static_cast<float>(run.lora_alpha));
  spec.set_train_attn(run.lora.train_attn);
  spec.set_train_mlp(run.lora.train_mlp);
  spec.set_train_unembed(run.lora.train_unembed);
  spec.set_seed(run.seed);
  return request;
}

// The operation goes to the worker: opens the span around the call. Without a controller span (unload_model) the
// future's is the parent.
actor::CallOptions TrainingController::begin_call(telemetry::Name name, RunOperation& operation) {
  const OperationKeys& keys = operation.future->keys;
  const telemetry::SpanContext& parent =
      operation.span.context().valid() ? operation.span.context() : operation.future->context;
  operation.backend_span =
      training_backend_tracer().start_span(name, {.attributes = KeyAttributes(keys), .parent = parent});
  operation.backend_span.set_attribute("tuft.lora_id", keys.run.str());
  parts_.futures.mark_sent(*operation.future);
  return {.trace = operation.backend_span.context(), .ids = call_ids(keys)};
}

std::optional<Error> TrainingController::refusal_of(Run& run, const RunOperation& operation) const {
  if (operation.refusal) return operation.refusal;
  if (const auto* step = std::get_if<OptimStep>(&operation.payload)) {
    if (auto refusal = refusal_of_step(*step)) return refusal;
  }
  MutexLock lock(run.mutex);
  if (run.closed) return not_found("unknown model_id: it was unloaded before this operation's turn", "model_not_found");
  if (operation.type == OperationType::kUnloadModel) return std::nullopt;
  if (run.broken) return run.broken;
  std::optional<Error> notice;
  // A load replaces what was rolled back, so it needs no warning.
  std::swap(notice, run.notice);
  if (operation.type == OperationType::kLoadWeights) return std::nullopt;
  return notice;
}

void TrainingController::start(const RunPtr& run, const OperationPtr& operation) {
  const telemetry::ContextScope scope(operation->future->context);
  operation->started = parts_.clock.monotonic();
  record_turn(*operation);
  if (!parts_.futures.claim(*operation->future)) {
    // Its client has no model, so that its place is free.
    if (operation->creates_run) {
      remove_run(run, Error{ErrorCode::kCancelled, "this model was never created: that was cancelled", "cancelled"});
    }
    return conclude(run, operation, Error{ErrorCode::kCancelled, "cancelled before its turn", "cancelled"});
  }
  if (auto refusal = refusal_of(*run, *operation)) return conclude(run, operation, std::move(*refusal));
  switch (operation->type) {
    case OperationType::kCreateModel:
      return start_create(run, operation);
    case OperationType::kUnloadModel:
      return start_unload(run, operation);
    case OperationType::kForward:
    case OperationType::kForwardBackward:
      return start_forward_backward(run, operation);
    case OperationType::kOptimStep:
      return start_optim_step(run, operation);
    case OperationType::kSaveWeights:
    case OperationType::kSaveWeightsForSampler:
      return start_save(run, operation);
    case OperationType::kLoadWeights:
      return operation->creates_run ? start_create(run, operation) : start_load(run, operation);
    case OperationType::kSample:
      break;
  }
  conclude(run, operation, internal_error("this operation is none of a training run"));
}

void TrainingController::start_create(const RunPtr& run, const OperationPtr& operation) {
  const actor::CallOptions options = begin_call("training_backend.create_adapter", *operation);
  run->backend->actor().create_adapter(
      adapter_request(*run), options,
      answer_to<worker::v1::CreateAdapterResponse>(run, operation, &TrainingController::on_created));
}

void TrainingController::on_created(const RunPtr& run, const OperationPtr& operation,
                                    Result<worker::v1::CreateAdapterResponse> result) {
  if (!result.ok()) {
    // Before the future fails, so that who sees it fail finds the place under the limit free.
    const Error& error = result.error();
    remove_run(run, Error{error.code, "this model could not be created: " + error.message, error.reason});
    return conclude(run, operation, error);
  }
  {
    MutexLock lock(run->mutex);
    run->created = true;
    run->adapter_generation = operation->generation;
    run->target_modules.assign(result->target_modules().begin(), result->target_modules().end());
  }
  run->backend->instruments().add_model(1);
  const telemetry::ContextScope scope(operation->span.context());
  telemetry::log_info("model.created", "model created", KeyAttributes(operation->future->keys));
  parts_.usage.audit({.action = AuditAction::kRunCreated, .user = run->user, .session = run->session, .run = run->id});
  if (operation->type == OperationType::kLoadWeights) return start_load(run, operation);
  conclude(run, operation, FutureValue(CreateModelResult{run->id}));
}

void TrainingController::start_unload(const RunPtr& run, const OperationPtr& operation) {
  const actor::CallOptions options = begin_call("training_backend.remove_adapter", *operation);
  worker::v1::RemoveAdapterRequest request;
  request.set_adapter_id(run->id.str());
  run->backend->actor().remove_adapter(
      std::move(request), options,
      answer_to<worker::v1::RemoveAdapterResponse>(run, operation, &TrainingController::on_unloaded));
}

void TrainingController::on_unloaded(const RunPtr& run, const OperationPtr& operation,
                                     Result<worker::v1::RemoveAdapterResponse> result) {
  // An adapter that went away with its worker is as good as removed.
  const bool gone =
      result.ok() || result.error().code == ErrorCode::kNotFound || result.error().code == ErrorCode::kUnavailable;
  if (!gone) return conclude(run, operation, std::move(result).error());
  remove_run(run, not_found("unknown model_id: it was unloaded before this operation's turn", "model_not_found"));
  const telemetry::ContextScope scope(operation->future->context);
  telemetry::log_info("model.unloaded", "model unloaded", KeyAttributes(operation->future->keys));
  parts_.usage.audit({.action = operation->ends_run ? AuditAction::kRunExpired : AuditAction::kRunUnloaded,
                      .user = operation->ends_run ? UserId() : run->user,
                      .owner = run->user,
                      .session = run->session,
                      .run = run->id});
  conclude(run, operation, FutureValue(UnloadModelResult{run->id}));
}

void TrainingController::start_forward_backward(const RunPtr& run, const OperationPtr& operation) {
  auto& request = std::get<worker::v1::ForwardBackwardRequest>(operation->payload);
  const bool backward = operation->type == OperationType::kForwardBackward;
  const actor::CallOptions options = backward ? begin_call("training_backend.forward_backward", *operation)
                                              : begin_call("training_backend.forward", *operation);
  operation->loss_fn = request.request().loss_fn();
  request.set_tenant(run->user.str());
  operation->backend_span.set_attribute("tuft.data_count", request.request().data_size());
  run->backend->actor().forward_backward(
      std::move(request), options,
      answer_to<worker::v1::ForwardBackwardResponse>(run, operation, &TrainingController::on_forward_backward));
}

void TrainingController::on_forward_backward(const RunPtr& run, const OperationPtr& operation,
                                             Result<worker::v1::ForwardBackwardResponse> result) {
  if (!result.ok()) return conclude(run, operation, std::move(result).error());
  record_pass(*run, *operation, *result);
  if (operation->type == OperationType::kForwardBackward) {
    MutexLock lock(run->mutex);
    run->gradient_pending = true;
  }
  conclude(run, operation, FutureValue(ProtobufResult{result->output().SerializeAsString()}));
}

void TrainingController::start_optim_step(const RunPtr& run, const OperationPtr& operation) {
  const auto& step = std::get<OptimStep>(operation->payload);
  worker::v1::OptimStepRequest request;
  request.set_adapter_id(run->id.str());
  worker::v1::AdamParams& params = *request.mutable_params();
  params.set_learning_rate(step.learning_rate);
  params.set_beta1(step.beta1);
  params.set_beta2(step.beta2);
  params.set_eps(step.eps);
  params.set_weight_decay(step.weight_decay);
  params.set_grad_clip_norm(step.grad_clip_norm);
  const actor::CallOptions options = begin_call("training_backend.optim_step", *operation);
  run->backend->actor().optim_step(
      std::move(request), options,
      answer_to<worker::v1::OptimStepResponse>(run, operation, &TrainingController::on_optim_step));
}

void TrainingController::on_optim_step(const RunPtr& run, const OperationPtr& operation,
                                       Result<worker::v1::OptimStepResponse> result) {
  if (!result.ok()) return conclude(run, operation, std::move(result).error());
  record_optim_step(*run, *operation, *result);
  OptimStepResult value;
  for (const auto& [name, metric] : result->metrics()) {
    if (std::isfinite(metric)) value.metrics.emplace(name, metric);  // JSON has no NaN
  }
  {
    MutexLock lock(run->mutex);
    run->weights_changed = true;
    run->gradient_pending = false;
  }
  conclude(run, operation, FutureValue(std::move(value)));
}

}  // namespace tuft::control
