// What telemetry hears of training runs and their operations.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "control/operation_keys.h"
#include "control/training_controller.h"
#include "telemetry/log.h"
#include "telemetry/metrics.h"

namespace tuft::control {
namespace {

// Shorter waits are only an attribute.
constexpr Nanos kWaitSpanMin = kMillisecond;

const telemetry::Tracer& tracer() {
  static const telemetry::Tracer instance = telemetry::get_tracer("tuft.training_controller");
  return instance;
}

// What a checkpoint operation does, for tuft.checkpoint.*; "" for other operations.
std::string_view checkpoint_action(OperationType type) {
  switch (type) {
    case OperationType::kSaveWeights:
    case OperationType::kSaveWeightsForSampler:
      return "save";
    case OperationType::kLoadWeights:
      return "load";
    default:
      return "";
  }
}

}  // namespace

TrainingController::TrainingController(const Parts& parts) : parts_(parts) {
  observe_runs();
}

TrainingController::~TrainingController() {
  const telemetry::Metrics& metrics = telemetry::get_metrics();
  metrics.training_runs.set_callback({});
  metrics.training_last_step_age.set_callback({});
}

std::string_view TrainingController::state_of(const Run& run) const {
  const bool idle = parts_.sessions.is_idle(run.session);
  MutexLock lock(run.mutex);
  if (run.broken) return "corrupted";
  if (run.restoring_generation > 0 || (run.created && !run.backend->holds(run.adapter_generation))) return "restoring";
  return idle && run.running == nullptr && run.log.empty() ? "idle" : "active";
}

void TrainingController::observe_runs() {
  const telemetry::Metrics& metrics = telemetry::get_metrics();
  using Observe = telemetry::Observable::Observe;
  metrics.training_runs.set_callback([this](const Observe& observe) {
    std::map<std::pair<std::string, std::string_view>, int> counts;
    for (const auto& backend : parts_.backends.all()) {
      for (const std::string_view state : {"active", "idle", "restoring", "corrupted"})
        counts[{backend->name(), state}];
    }
    for (const RunPtr& run : all_runs()) ++counts[{run->backend->name(), state_of(*run)}];
    for (const auto& [key, count] : counts) observe(count, {{"base_model", key.first}, {"state", key.second}});
  });
  metrics.training_last_step_age.set_callback([this](const Observe& observe) {
    for (const auto& backend : parts_.backends.all()) {
      const Nanos last = backend->last_step();
      if (last != 0) observe(to_seconds(parts_.clock.monotonic() - last), {{"base_model", backend->name()}});
    }
  });
}

// Its turn has come: how long it waited for that.
void TrainingController::record_turn(RunOperation& operation) const {
  const Nanos waited = operation.started - operation.placed;
  operation.span.set_attribute("tuft.sequence_guard.wait_seconds", to_seconds(waited));
  if (operation.seq_id) {
    telemetry::get_metrics().sequence_guard_wait_duration.record(to_seconds(waited),
                                                                 {{"operation_type", operation_name(operation.type)}});
  }
  if (waited < kWaitSpanMin || !operation.span.recording()) return;
  telemetry::Span wait =
      tracer().start_span("sequence_guard.wait", {.attributes = KeyAttributes(operation.future->keys),
                                                  .parent = operation.span.context(),
                                                  .start = operation.placed});
  wait.end(operation.started);
}

void TrainingController::record_pass(const Run& run, RunOperation& operation,
                                     const worker::v1::ForwardBackwardResponse& response) const {
  const double seconds = to_seconds(parts_.clock.monotonic() - operation.future->created);
  run.backend->instruments().record_pass(operation.type, operation.loss_fn, response, seconds);
  parts_.usage.add(run.user, operation.future->keys, UsageKind::kTraining, response.tokens());
  if (parts_.config.telemetry.tenant_label) {
    telemetry::get_metrics().tenant_tokens.add(response.tokens(), {{"tenant", run.user.str()}, {"kind", "train"}});
  }
  operation.span.set_attributes({{"tuft.tokens", response.tokens()},
                                 {"tuft.queue_ms", response.queue_seconds() * 1e3},
                                 {"tuft.num_micro_batches", response.passes()}});
  const auto sum = response.output().metrics().find("loss:sum");
  const bool has_loss =
      sum != response.output().metrics().end() && std::isfinite(sum->second) && response.weight_sum() > 0;
  if (has_loss) operation.span.set_attribute("tuft.loss", sum->second / response.weight_sum());
}

void TrainingController::record_optim_step(const Run& run, RunOperation& operation,
                                           const worker::v1::OptimStepResponse& response) const {
  run.backend->instruments().record_optim_step(response);
  if (!response.nonfinite()) run.backend->note_step(parts_.clock.monotonic());
  const auto metric = [&](const char* name) {
    const auto found = response.metrics().find(name);
    return found != response.metrics().end() && std::isfinite(found->second) ? found->second : 0.0;
  };
  operation.span.set_attributes({{"tuft.grad_norm", metric("grad_norm")},
                                 {"tuft.step", static_cast<int64_t>(metric("step"))},
                                 {"tuft.grad_clipped", response.clipped()},
                                 {"tuft.queue_ms", response.queue_seconds() * 1e3}});
}

void TrainingController::record_saved(const Run& run, const RunOperation& operation, const OperationKeys& keys,
                                      const Checkpoint& saved) const {
  const std::string path = saved.path.str();
  const std::string_view type = checkpoint_type_name(saved.path.kind);
  parts_.usage.add(run.user, keys, UsageKind::kCheckpoint, 1);
  if (!saved.ephemeral) {
    parts_.usage.audit({.action = AuditAction::kCheckpointSaved,
                        .user = run.user,
                        .session = run.session,
                        .run = run.id,
                        .tinker_path = path,
                        .purpose = std::string(type)});
  }
  const telemetry::Metrics& metrics = telemetry::get_metrics();
  metrics.training_checkpoints_saved.add(1, {{"checkpoint_type", type}});
  metrics.training_checkpoint_size_bytes.record(static_cast<double>(saved.size_bytes), {{"checkpoint_type", type}});
  metrics.checkpoint_duration.record(to_seconds(parts_.clock.monotonic() - operation.started), {{"operation", "save"}});
  const telemetry::ContextScope scope(operation.span.context());
  telemetry::log_info(
      "checkpoint.save.completed", "checkpoint saved",
      KeyAttributes(
          keys, {{"tuft.checkpoint", path}, {"tuft.checkpoint_type", type}, {"tuft.size_bytes", saved.size_bytes}}));
}

void TrainingController::record_checkpoint_failure(const RunOperation& operation, const OperationKeys& keys,
                                                   const Error& error) const {
  const std::string_view action = checkpoint_action(operation.type);
  if (action.empty()) return;
  telemetry::get_metrics().checkpoint_failures.add(1, {{"operation", action}, {"reason", error_code_name(error.code)}});
  const telemetry::ContextScope scope(operation.span.context());
  const KeyAttributes attributes(keys, {{"error.type", error_code_name(error.code)}});
  const auto severity = is_user_error(error.code) ? telemetry::Severity::kWarning : telemetry::Severity::kError;
  if (action == "save") {
    telemetry::log(severity, "checkpoint.save.failed", error.message, attributes);
  } else {
    telemetry::log(severity, "checkpoint.load.failed", error.message, attributes);
  }
}

}  // namespace tuft::control
