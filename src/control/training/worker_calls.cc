#include "control/training/worker_calls.h"

#include "control/checkpoints/checkpoint_files.h"
#include "control/types/errors.h"
#include "control/types/operation_keys.h"

namespace tuft::control {
namespace {

const telemetry::Tracer& calls_tracer() {
  static const telemetry::Tracer instance = telemetry::get_tracer("tuft.training_backend");
  return instance;
}

}  // namespace

actor::CallOptions WorkerCalls::begin_call(telemetry::Name name, RunOperation& operation,
                                           std::string_view lora_id) const {
  const OperationKeys& keys = operation.future->keys;
  // unload_model has no controller span, so the future's span is the parent.
  const telemetry::SpanContext& parent =
      operation.span.context().valid() ? operation.span.context() : operation.future->context;
  operation.backend_span = calls_tracer().start_span(name, {.attributes = KeyAttributes(keys), .parent = parent});
  operation.backend_span.set_attribute("tuft.lora_id", lora_id.empty() ? keys.run.str() : lora_id);
  futures_.mark_sent(*operation.future);
  worker::v1::CallIds ids = call_ids(keys);
  ids.set_resumes(operation.resumes);
  ids.set_request_id(call_id_of(operation));
  return {.trace = operation.backend_span.context(), .ids = std::move(ids), .incarnation = operation.incarnation};
}

Error WorkerCalls::error_of_resumed(Error error) {
  if (error.reason != "not_begun") return error;
  return server_restarted(
      "not executed: the server was restarted before a worker had begun this operation. Submit it again");
}

WorkerCalls::Call WorkerCalls::begin_call(telemetry::Name name, const Run& run, uint64_t incarnation) {
  const OperationKeys keys = keys_of(run);
  auto span = std::make_shared<telemetry::Span>(calls_tracer().start_span(
      name, {.attributes = KeyAttributes(keys, {{"tuft.lora_id", run.id.str()}}), .parent = {}}));
  actor::CallOptions options{.trace = span->context(), .ids = call_ids(keys), .incarnation = incarnation};
  return {std::move(span), std::move(options)};
}

worker::v1::CreateAdapterRequest create_adapter_request(const Run& run) {
  worker::v1::CreateAdapterRequest request;
  request.set_adapter_id(run.id.str());
  worker::v1::LoraSpec& spec = *request.mutable_spec();
  spec.set_rank(run.lora.rank);
  spec.set_alpha(static_cast<float>(run.lora_alpha));
  spec.set_train_attn(run.lora.train_attn);
  spec.set_train_mlp(run.lora.train_mlp);
  spec.set_train_unembed(run.lora.train_unembed);
  spec.set_seed(run.seed);
  request.set_optimizer(std::string(optimizer_name(run.optimizer)));
  return request;
}

worker::v1::RemoveAdapterRequest remove_adapter_request(const Run& run) {
  worker::v1::RemoveAdapterRequest request;
  request.set_adapter_id(run.id.str());
  return request;
}

worker::v1::OptimStepRequest optim_step_request(const OptimStep& step) {
  worker::v1::OptimStepRequest request;
  request.set_adapter_id(step.run.str());
  if (step.optimizer == Optimizer::kDimuon) {
    worker::v1::DimuonParams& params = *request.mutable_dimuon();
    params.set_learning_rate(step.learning_rate);
    params.set_beta1(step.beta1);
    params.set_grad_clip_norm(step.grad_clip_norm);
    return request;
  }
  worker::v1::AdamParams& params = *request.mutable_params();
  params.set_learning_rate(step.learning_rate);
  params.set_beta1(step.beta1);
  params.set_beta2(step.beta2);
  params.set_eps(step.eps);
  params.set_weight_decay(step.weight_decay);
  params.set_grad_clip_norm(step.grad_clip_norm);
  return request;
}

worker::v1::LoadStateRequest load_state_request(const Run& run, const Checkpoint& checkpoint, bool with_optimizer) {
  worker::v1::LoadStateRequest request;
  request.set_adapter_id(run.id.str());
  request.set_directory(checkpoint.files->directory().string());
  request.set_with_optimizer(with_optimizer);
  return request;
}

}  // namespace tuft::control
