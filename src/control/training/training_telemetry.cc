#include "control/training/training_telemetry.h"

#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "control/types/operation_keys.h"
#include "metrics/futures.h"
#include "metrics/tenants.h"
#include "metrics/training.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

// A shorter wait gets no span of its own, only an attribute.
constexpr Nanos kWaitSpanMin = kMillisecond;

const telemetry::Tracer& training_tracer() {
  static const telemetry::Tracer instance = telemetry::get_tracer("tuft.training_controller");
  return instance;
}

// Returns the label of tuft.checkpoint.*; empty for operations that neither save nor load.
std::string_view checkpoint_action(OperationType type) {
  switch (type) {
    case OperationType::kSaveWeights:
    case OperationType::kSaveWeightsForSampler:
    case OperationType::kSaveWeightsExternal:
      return "save";
    case OperationType::kLoadWeights:
      return "load";
    default:
      return "";
  }
}

void describe_payload(const Run& run, RunOperation& operation) {
  if (const auto* request = std::get_if<worker::v1::ForwardBackwardRequest>(&operation.payload)) {
    const std::string& loss_fn = request->request().loss_fn();
    // A client can invent a name, so only names that the worker knows are recorded.
    operation.span.set_attributes(
        {{"tuft.data_count", request->request().data_size()},
         {"tuft.loss_fn", run.backend()->facts().has_loss(loss_fn) ? std::string_view(loss_fn) : "unknown"}});
  } else if (const auto* step = std::get_if<OptimStep>(&operation.payload)) {
    operation.span.set_attribute("tuft.learning_rate", step->learning_rate);
  } else if (operation.type == OperationType::kSaveWeights) {
    operation.span.set_attribute("tuft.checkpoint_type", checkpoint_type_name(CheckpointKind::kTraining));
  } else if (const auto* external = std::get_if<SaveWeightsExternal>(&operation.payload)) {
    operation.span.set_attributes({{"tuft.checkpoint_type", checkpoint_type_name(CheckpointKind::kExternal)},
                                   {"tuft.encrypted", external->age_recipients.has_value()}});
  } else if (operation.type == OperationType::kSaveWeightsForSampler) {
    operation.span.set_attribute("tuft.checkpoint_type", checkpoint_type_name(CheckpointKind::kSampler));
  }
}

}  // namespace

void start_operation_span(const Run& run, RunOperation& operation) {
  const telemetry::SpanOptions options{.parent = operation.future->context};
  switch (operation.type) {
    case OperationType::kCreateModel:
      operation.span = training_tracer().start_span("training_controller.create_model", options);
      break;
    case OperationType::kForward:
      operation.span = training_tracer().start_span("training_controller.run_forward", options);
      break;
    case OperationType::kForwardBackward:
      operation.span = training_tracer().start_span("training_controller.run_forward_backward", options);
      break;
    case OperationType::kOptimStep:
      operation.span = training_tracer().start_span("training_controller.run_optim_step", options);
      break;
    case OperationType::kSaveWeights:
    case OperationType::kSaveWeightsForSampler:
    case OperationType::kSaveWeightsExternal:
      operation.span = training_tracer().start_span("training_controller.save_checkpoint", options);
      break;
    case OperationType::kLoadWeights:
      operation.span = training_tracer().start_span("training_controller.load_checkpoint", options);
      break;
    case OperationType::kUnloadModel:
    case OperationType::kSample:
    case OperationType::kUnknown:
    case OperationType::kCreateCustomLoss:
      return;
  }
  operation.span.set_attributes(KeyAttributes(operation.future->keys));
  describe_payload(run, operation);
}

void record_turn(RunOperation& operation) {
  const Nanos waited = operation.started - operation.placed;
  operation.span.set_attribute("tuft.sequence_guard.wait_seconds", to_seconds(waited));
  if (operation.seq_id) {
    const telemetry::ContextScope scope(operation.span.context());
    metrics::futures().sequence_guard_wait_duration.record(to_seconds(waited),
                                                           {{"operation_type", operation_name(operation.type)}});
  }
  if (waited < kWaitSpanMin || !operation.span.recording()) return;
  telemetry::Span wait =
      training_tracer().start_span("sequence_guard.wait", {.attributes = KeyAttributes(operation.future->keys),
                                                           .parent = operation.span.context(),
                                                           .start = operation.placed});
  wait.end(operation.started);
}

void record_checkpoint_failure(const RunOperation& operation, const Error& error) {
  const std::string_view action = checkpoint_action(operation.type);
  if (action.empty()) return;
  const bool disk_full = error.reason == kDiskFull;
  const std::string_view reason = disk_full ? kDiskFull : error_code_name(error.code);
  metrics::training().checkpoint_failures.add(1, {{"operation", action}, {"reason", reason}});
  const telemetry::ContextScope scope(operation.span.context());
  const KeyAttributes attributes(operation.future->keys, {{"error.type", reason}});
  const auto severity =
      is_user_error(error.code) && !disk_full ? telemetry::Severity::kWarning : telemetry::Severity::kError;
  if (action == "save") {
    telemetry::log(severity, "checkpoint.save.failed", error.message, attributes);
  } else {
    telemetry::log(severity, "checkpoint.load.failed", error.message, attributes);
  }
}

void TrainingTelemetry::record_created(const Run& run, const RunOperation& operation) const {
  run.backend()->instruments().add_model(1);
  const telemetry::ContextScope scope(operation.span.context());
  telemetry::log_info("model.created", "model created", KeyAttributes(operation.future->keys));
  usage_.audit({.action = AuditAction::kRunCreated, .user = run.user, .session = run.session, .run = run.id});
}

void TrainingTelemetry::record_unloaded(const Run& run, const RunOperation& operation) const {
  const telemetry::ContextScope scope(operation.future->context);
  telemetry::log_info("model.unloaded", "model unloaded", KeyAttributes(operation.future->keys));
  usage_.audit({.action = operation.ends_run ? AuditAction::kRunExpired : AuditAction::kRunUnloaded,
                .user = operation.ends_run ? UserId() : run.user,
                .owner = run.user,
                .session = run.session,
                .run = run.id});
}

void TrainingTelemetry::record_pass(const Run& run, RunOperation& operation,
                                    const worker::v1::ForwardBackwardResponse& response) const {
  const double seconds = to_seconds(clock_.monotonic() - operation.future->created);
  // Exemplars lead from the histograms to this span.
  const telemetry::ContextScope scope(operation.span.context());
  run.backend()->instruments().record_pass(operation.type, operation.loss_fn, response, seconds);
  run.backend()->facts().note_pass(response.tokens());
  run.backend()->recent_work().add(response.tokens(), clock_.monotonic());
  usage_.add(run.user, operation.future->keys, UsageKind::kTraining, response.tokens());
  if (tenant_label_) {
    metrics::tenants().tenant_tokens.add(response.tokens(), {{"tenant", run.user.str()}, {"kind", "train"}});
  }
  operation.span.set_attributes({{"tuft.tokens", response.tokens()},
                                 {"tuft.queue_ms", response.queue_seconds() * 1e3},
                                 {"tuft.num_micro_batches", response.passes()}});
  const bool has_loss = response.has_loss_sum() && std::isfinite(response.loss_sum()) && response.weight_sum() > 0;
  if (has_loss) operation.span.set_attribute("tuft.loss", response.loss_sum() / response.weight_sum());
}

void TrainingTelemetry::record_optim_step(const Run& run, RunOperation& operation,
                                          const worker::v1::OptimStepResponse& response) const {
  const telemetry::ContextScope scope(operation.span.context());
  run.backend()->instruments().record_optim_step(response);
  if (response.stepped()) run.backend()->facts().note_step(clock_.monotonic());
  operation.span.set_attributes({{"tuft.grad_norm", std::isfinite(response.grad_norm()) ? response.grad_norm() : 0.0},
                                 {"tuft.step", response.step()},
                                 {"tuft.grad_clipped", response.clipped()},
                                 {"tuft.queue_ms", response.queue_seconds() * 1e3}});
}

void TrainingTelemetry::keep_step(const Run& run, const RunOperation& operation,
                                  const worker::v1::OptimStepResponse& response, const StepSpan& span) const {
  if (store_ == nullptr || !response.stepped()) return;  // it would have the number of the step before
  telemetry_store::RunStep step;
  step.run = run.id.str();
  step.owner = run.user.str();
  step.step = response.step();
  step.time = clock_.wall();
  step.loss = span.loss();
  step.grad_norm = response.grad_norm();
  if (const auto* request = std::get_if<OptimStep>(&operation.payload)) step.learning_rate = request->learning_rate;
  step.tokens = span.tokens;
  step.pass_seconds = to_seconds(span.passes);
  step.step_seconds = to_seconds(span.step);
  step.wait_seconds = to_seconds(span.waiting);
  step.save_seconds = to_seconds(span.saves);
  step.idle_seconds = to_seconds(span.idle);
  step.clipped = response.clipped();
  store_->add_step(std::move(step));
}

void TrainingTelemetry::record_saved(const Run& run, const RunOperation& operation, const Checkpoint& saved) const {
  const OperationKeys& keys = operation.future->keys;
  const std::string path = saved.path.str();
  const std::string_view type = checkpoint_type_name(saved.path.kind);
  // A user does not pay for a run that the server moves.
  if (!operation.moves_run) usage_.add(run.user, keys, UsageKind::kCheckpoint, 1);
  if (!saved.ephemeral) {
    usage_.audit({.action = AuditAction::kCheckpointSaved,
                  .user = run.user,
                  .session = run.session,
                  .run = run.id,
                  .tinker_path = path,
                  .purpose = std::string(type)});
  }
  metrics::training().checkpoints_saved.add(1, {{"checkpoint_type", type}});
  metrics::training().checkpoint_size_bytes.record(static_cast<double>(saved.size_bytes), {{"checkpoint_type", type}});
  metrics::training().checkpoint_duration.record(to_seconds(clock_.monotonic() - operation.started),
                                                 {{"operation", "save"}});
  const telemetry::ContextScope scope(operation.span.context());
  telemetry::log_info(
      "checkpoint.save.completed", "checkpoint saved",
      KeyAttributes(
          keys, {{"tuft.checkpoint", path}, {"tuft.checkpoint_type", type}, {"tuft.size_bytes", saved.size_bytes}}));
}

void TrainingTelemetry::record_loaded(const Run& run, const RunOperation& operation) const {
  const Checkpoint& loaded = *operation.checkpoint;
  const std::string path = loaded.path.str();
  metrics::training().checkpoint_duration.record(to_seconds(clock_.monotonic() - operation.started),
                                                 {{"operation", "load"}});
  const telemetry::ContextScope scope(operation.span.context());
  telemetry::log_info("checkpoint.load.completed", "checkpoint loaded",
                      KeyAttributes(operation.future->keys, {{"tuft.checkpoint", path}}));
  usage_.audit({.action = AuditAction::kCheckpointLoaded,
                .user = run.user,
                .owner = loaded.owner,
                .session = run.session,
                .run = loaded.path.run,
                .tinker_path = path,
                .purpose = "training"});
}

}  // namespace tuft::control
