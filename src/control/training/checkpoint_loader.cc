#include "control/training/checkpoint_loader.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tuft::control {
namespace {

std::string module_list(const std::vector<std::string>& modules) {
  std::string list;
  for (const std::string& module : modules) list += (list.empty() ? "" : ",") + module;
  return list;
}

// A checkpoint fits only an adapter of the same shape. The error names both values.
Status check_fits(const Checkpoint& checkpoint, const Run& run, const std::vector<std::string>& run_modules) {
  const auto differ = [&](const char* what, const std::string& theirs, const std::string& ours) {
    return invalid_argument("checkpoint " + checkpoint.path.str() + " does not fit this model: its " + what + " is " +
                                theirs + ", the model's is " + ours,
                            "checkpoint_mismatch");
  };
  if (checkpoint.base_model != run.backend()->name()) {
    return differ("base model", checkpoint.base_model, run.backend()->name());
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

// Without this check, training would continue with new moments, and the user would not notice.
Status check_optimizer(const Checkpoint& checkpoint, const Run& run, bool wanted) {
  if (!wanted) return {};
  if (checkpoint.path.kind == CheckpointKind::kTraining) {
    return run.optimizer == checkpoint.optimizer ? Status() : other_optimizer(checkpoint, run.optimizer);
  }
  return invalid_argument("checkpoint " + checkpoint.path.str() +
                              " was saved for sampling and has no optimizer state; load one that save_state made, or "
                              "load without the optimizer",
                          "no_optimizer_state");
}

}  // namespace

Error other_optimizer(const Checkpoint& checkpoint, Optimizer optimizer) {
  return invalid_argument("checkpoint " + checkpoint.path.str() + " has the optimizer state of " +
                              std::string(optimizer_name(checkpoint.optimizer)) + ", and this model trains with " +
                              std::string(optimizer_name(optimizer)) +
                              "; load it without the optimizer, or create the model with that optimizer",
                          "optimizer_mismatch");
}

Result<CheckpointPtr> CheckpointLoader::find(const UserId& user, const LoadWeights& load) const {
  auto found = checkpoints_.find_visible(user, load.path);
  if (found.ok() || load.token_user.empty()) return found;
  return checkpoints_.find_visible(load.token_user, load.path);
}

void CheckpointLoader::start(const RunPtr& run, const OperationPtr& operation) {
  const auto& load = std::get<LoadWeights>(operation->payload);
  if (operation->checkpoint == nullptr) {
    auto found = find(run->user, load);
    if (!found.ok()) return executor_.conclude(run, operation, std::move(found).error());
    operation->checkpoint = *found;
  }
  std::vector<std::string> modules;
  {
    MutexLock lock(run->mutex);
    modules = run->target_modules;
  }
  Status fits = check_fits(*operation->checkpoint, *run, modules);
  if (fits.ok()) fits = check_optimizer(*operation->checkpoint, *run, load.optimizer);
  if (!fits.ok()) return fail(run, operation, fits.error());
  const auto request = std::make_shared<const worker::v1::LoadStateRequest>(
      load_state_request(*run, *operation->checkpoint, load.optimizer));
  const actor::CallOptions options = calls_.begin_call("training_backend.load_state", *operation);
  operation->backend_span.set_attribute("tuft.optimizer", load.optimizer);
  calls_.execute<rpc::LoadState>(run, operation, request, options,
                                 [this, run, operation](auto result) { on_loaded(run, operation, std::move(result)); });
}

void CheckpointLoader::on_loaded(const RunPtr& run, const OperationPtr& operation,
                                 Result<worker::v1::LoadStateResponse> result) {
  if (!result.ok()) return fail(run, operation, without_path(std::move(result).error(), directory_));
  {
    MutexLock lock(run->mutex);
    const bool optimizer = std::get<LoadWeights>(operation->payload).optimizer;
    run->restore_point = RestorePoint{.checkpoint = operation->checkpoint,
                                      .with_optimizer = optimizer,
                                      .number = operation->future->number,
                                      .seq_id = operation->seq_id,
                                      .hold = hold_checkpoint(operation->checkpoint, run->user)};
    run->broken.reset();
    run->journal.begin();
    run->weights_changed = false;
    run->gradient_pending = false;
  }
  telemetry_.record_loaded(*run, *operation);
  executor_.conclude(run, operation, FutureValue(LoadWeightsResult{operation->checkpoint->path.str(), run->id}));
}

void CheckpointLoader::fail(const RunPtr& run, const OperationPtr& operation, Error error) {
  if (operation->creates_run) {
    executor_.close(run, Error{error.code, "this model could not be created: " + error.message, error.reason});
    // Nobody waits for the answer. If the worker has ended, its adapters have too.
    const WorkerCalls::Call call = WorkerCalls::begin_call("training_backend.remove_adapter", *run);
    run->backend()->actor().remove_adapter(
        remove_adapter_request(*run), call.options,
        calls_.answer_to<worker::v1::RemoveAdapterResponse>(call, [](const auto&) {}));
  }
  executor_.conclude(run, operation, std::move(error));
}

}  // namespace tuft::control
