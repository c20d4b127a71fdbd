// Loading checkpoints into runs, and runs that are made by it.
#include <set>
#include <utility>

#include "control/operation_keys.h"
#include "control/training_answers.h"
#include "control/training_controller.h"
#include "telemetry/log.h"
#include "telemetry/metrics.h"

namespace tuft::control {
namespace {

std::string module_list(const std::vector<std::string>& modules) {
  std::string list;
  for (const std::string& module : modules) list += (list.empty() ? "" : ",") + module;
  return list;
}

// A checkpoint fits an adapter of the same shape only. Names both values.
Status check_fits(const Checkpoint& checkpoint, const Run& run, const std::vector<std::string>& run_modules) {
  const auto differ = [&](const char* what, const std::string& theirs, const std::string& ours) {
    return invalid_argument("checkpoint " + checkpoint.path.str() + " does not fit this model: its " + what + " is " +
                                theirs + ", the model's is " + ours,
                            "checkpoint_mismatch");
  };
  if (checkpoint.base_model != run.backend->name()) {
    return differ("base model", checkpoint.base_model, run.backend->name());
  }
  if (checkpoint.lora_rank != run.lora.rank) {
    return differ("lora rank", std::to_string(checkpoint.lora_rank), std::to_string(run.lora.rank));
  }
  if (checkpoint.lora_alpha != run.lora_alpha) {
    return differ("lora alpha", std::to_string(checkpoint.lora_alpha), std::to_string(run.lora_alpha));
  }
  const std::set<std::string> theirs(checkpoint.target_modules.begin(), checkpoint.target_modules.end());
  const std::set<std::string> ours(run_modules.begin(), run_modules.end());
  if (theirs != ours)
    return differ("list of modules", module_list(checkpoint.target_modules), module_list(run_modules));
  return {};
}

// Fresh moments instead of those that were asked for would change the training without a word.
Status check_optimizer(const Checkpoint& checkpoint, bool wanted) {
  if (!wanted || checkpoint.path.kind == CheckpointKind::kTraining) return {};
  return invalid_argument("checkpoint " + checkpoint.path.str() +
                              " was saved for sampling and has no optimizer state; load one that save_state made, or "
                              "load without the optimizer",
                          "no_optimizer_state");
}

CreateModel model_of(const NewModel& request, const Checkpoint& checkpoint) {
  CreateModel model;
  model.session = request.session;
  model.model_seq_id = request.model_seq_id;
  model.base_model = checkpoint.base_model;
  model.user_metadata = request.user_metadata;
  model.lora.rank = checkpoint.lora_rank;
  model.lora.train_attn = checkpoint.train_attn;
  model.lora.train_mlp = checkpoint.train_mlp;
  model.lora.train_unembed = checkpoint.train_unembed;
  return model;
}

}  // namespace

Result<CheckpointStore::Ptr> TrainingController::find_loadable(const UserId& user, const LoadWeights& load) const {
  auto found = parts_.checkpoints.find_visible(user, load.path);
  if (found.ok() || load.token_user.empty()) return found;
  return parts_.checkpoints.find_visible(load.token_user, load.path);
}

Result<Submitted> TrainingController::load_weights(const UserId& user, const LoadWeights& request,
                                                   const telemetry::SpanContext& trace) {
  if (request.create) return create_from_checkpoint(user, request, trace);
  return submit(user, request.run, OperationType::kLoadWeights, request.seq_id, request, std::nullopt, trace);
}

Result<Submitted> TrainingController::create_from_checkpoint(const UserId& user, const LoadWeights& request,
                                                             const telemetry::SpanContext& trace) {
  const NewModel& create = *request.create;
  TUFT_TRY(parts_.sessions.touch(user, create.session));
  if (create.model_seq_id < 0) return invalid_argument("model_seq_id must not be negative", "invalid_model_seq_id");
  const RunId id = run_id_of(create.session, create.model_seq_id);
  const FuturePtr known = parts_.futures.find_by_key(user, creation_key(id));
  if (known != nullptr && known->operation == OperationType::kLoadWeights) return submitted(known);
  TUFT_ASSIGN(const CheckpointStore::Ptr checkpoint, find_loadable(user, request));
  if (!create.base_model.empty() && create.base_model != checkpoint->base_model) {
    return invalid_argument("checkpoint " + checkpoint->path.str() + " was made for base model " +
                                checkpoint->base_model + ", not for " + create.base_model,
                            "checkpoint_mismatch");
  }
  TUFT_ASSIGN(const auto backend, parts_.backends.find(checkpoint->base_model));
  const CreateModel model = model_of(create, *checkpoint);
  TUFT_TRY(check_model(model, backend->config()));
  auto operation = std::make_shared<RunOperation>();
  operation->type = OperationType::kLoadWeights;
  operation->payload = request;
  operation->checkpoint = checkpoint;
  return admit_creation(user, model, backend, checkpoint->lora_alpha, operation, trace);
}

void TrainingController::start_load(const RunPtr& run, const OperationPtr& operation) {
  const auto& load = std::get<LoadWeights>(operation->payload);
  if (operation->checkpoint == nullptr) {
    auto found = find_loadable(run->user, load);
    if (!found.ok()) return conclude(run, operation, std::move(found).error());
    operation->checkpoint = *found;
  }
  const CheckpointStore::Ptr checkpoint = operation->checkpoint;
  std::vector<std::string> modules;
  {
    MutexLock lock(run->mutex);
    modules = run->target_modules;
  }
  Status fits = check_fits(*checkpoint, *run, modules);
  if (fits.ok()) fits = check_optimizer(*checkpoint, load.optimizer);
  if (!fits.ok()) return fail_load(run, operation, fits.error());
  worker::v1::LoadStateRequest request;
  request.set_adapter_id(run->id.str());
  request.set_directory(checkpoint->files->directory().string());
  request.set_with_optimizer(load.optimizer);
  const actor::CallOptions options = begin_call("training_backend.load_state", *operation);
  operation->backend_span.set_attribute("tuft.optimizer", load.optimizer);
  run->backend->actor().load_state(
      std::move(request), options,
      answer_to<worker::v1::LoadStateResponse>(run, operation, &TrainingController::on_loaded));
}

void TrainingController::on_loaded(const RunPtr& run, const OperationPtr& operation,
                                   Result<worker::v1::LoadStateResponse> result) {
  if (!result.ok()) {
    return fail_load(run, operation, without_path(std::move(result).error(), parts_.config.checkpoint_dir));
  }
  const std::string path = operation->checkpoint->path.str();
  {
    MutexLock lock(run->mutex);
    const bool optimizer = std::get<LoadWeights>(operation->payload).optimizer;
    run->restore_point = RestorePoint{operation->checkpoint, optimizer, operation->future->number, operation->seq_id};
    run->weights_changed = false;
    run->gradient_pending = false;
  }
  telemetry::get_metrics().checkpoint_duration.record(to_seconds(parts_.clock.monotonic() - operation->started),
                                                      {{"operation", "load"}});
  const telemetry::ContextScope scope(operation->span.context());
  telemetry::log_info("checkpoint.load.completed", "checkpoint loaded",
                      KeyAttributes(operation->future->keys, {{"tuft.checkpoint", path}}));
  parts_.usage.audit({.action = AuditAction::kCheckpointLoaded,
                      .user = run->user,
                      .owner = operation->checkpoint->owner,
                      .session = run->session,
                      .run = operation->checkpoint->path.run,
                      .tinker_path = path,
                      .purpose = "training"});
  conclude(run, operation, FutureValue(LoadWeightsResult{path, run->id}));
}

// A model that was made for this load goes with it: its client knows of none.
void TrainingController::fail_load(const RunPtr& run, const OperationPtr& operation, Error error) {
  if (operation->creates_run) {
    remove_run(run, Error{error.code, "this model could not be created: " + error.message, error.reason});
    remove_adapter(run);
  }
  conclude(run, operation, std::move(error));
}

}  // namespace tuft::control
