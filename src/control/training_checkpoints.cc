#include <algorithm>
#include <utility>

#include "control/operation_keys.h"
#include "control/quota.h"
#include "control/training_answers.h"
#include "control/training_controller.h"
#include "telemetry/log.h"
#include "telemetry/metrics.h"

namespace tuft::control {
namespace {

CheckpointKind kind_of(const RunOperation& operation) {
  return operation.type == OperationType::kSaveWeights ? CheckpointKind::kTraining : CheckpointKind::kSampler;
}

std::optional<int64_t> ttl_of(const RunOperation& operation) {
  if (const auto* save = std::get_if<SaveWeights>(&operation.payload)) return save->ttl_seconds;
  return std::get<SaveWeightsForSampler>(operation.payload).ttl_seconds;
}

}  // namespace

Error without_path(Error error, const std::filesystem::path& root) {
  const std::string text = root.string();
  if (text.empty()) return error;
  for (size_t at = error.message.find(text); at != std::string::npos; at = error.message.find(text, at)) {
    error.message.replace(at, text.size(), "<checkpoint_dir>");
  }
  return error;
}

// Runs `work` on the disk thread. `begun`: the operation had its place there, and what it made is not thrown away for
// want of another. The operation fails where there is none.
void TrainingController::on_disk(const RunPtr& run, const OperationPtr& operation, bool begun,
                                 std::function<void(TrainingController&)> work) {
  auto task = [weak = weak_from_this(), work = std::move(work)] {
    if (const auto self = weak.lock()) work(*self);
  };
  Status posted;
  if (!begun) {
    posted = parts_.disk.post(run->user, std::move(task));
  } else if (!parts_.disk.post_rest(run->user, std::move(task))) {
    posted = unavailable("the server is shutting down", "shutting_down");
  }
  if (!posted.ok()) conclude(run, operation, std::move(posted).error());
}

void TrainingController::start_save(const RunPtr& run, const OperationPtr& operation) {
  const CheckpointKind kind = kind_of(*operation);
  Checkpoint checkpoint;
  checkpoint.path = {run->id, kind, {}};
  bool overwrite = true;  // a sampler save replaces; samplers that are open keep what they have
  if (const auto* save = std::get_if<SaveWeights>(&operation->payload)) {
    checkpoint.path.name = save->name;
    overwrite = save->overwrite;
  } else {
    const auto& sampler_save = std::get<SaveWeightsForSampler>(operation->payload);
    checkpoint.path.name = sampler_save.name;
    checkpoint.ephemeral = sampler_save.name.empty() && sampler_save.sampling_session_seq_id.has_value();
  }
  {
    MutexLock lock(run->mutex);
    checkpoint.target_modules = run->target_modules;
    if (checkpoint.path.name.empty()) {
      int* counter = kind == CheckpointKind::kTraining ? &run->next_training_name
                     : checkpoint.ephemeral            ? &run->next_ephemeral_name
                                                       : &run->next_sampler_name;
      checkpoint.path.name =
          parts_.checkpoints.free_name(run->id, kind, checkpoint.ephemeral ? "ephemeral-" : "checkpoint-", counter);
    }
  }
  if (!overwrite && parts_.checkpoints.exists(checkpoint.path)) {
    return conclude(run, operation,
                    Error{ErrorCode::kAlreadyExists,
                          "checkpoint " + checkpoint.path.str() +
                              " already exists; pass overwrite=True to replace it or choose another name",
                          "checkpoint_exists"});
  }
  checkpoint.owner = run->user;
  checkpoint.session = run->session;
  checkpoint.base_model = run->backend->name();
  checkpoint.user_metadata = run->user_metadata;
  checkpoint.project_id = parts_.sessions.project_of(run->session).value_or("");
  checkpoint.lora_rank = run->lora.rank;
  checkpoint.lora_alpha = run->lora_alpha;
  checkpoint.train_attn = run->lora.train_attn;
  checkpoint.train_mlp = run->lora.train_mlp;
  checkpoint.train_unembed = run->lora.train_unembed;
  checkpoint.future_number = operation->future->number;
  checkpoint.seq_id = operation->seq_id;
  if (kind == CheckpointKind::kSampler && run->backend->config().sampling) {
    return publish(run, operation, std::move(checkpoint));
  }
  on_disk(run, operation, false, [run, operation, checkpoint = std::move(checkpoint)](TrainingController& self) {
    self.save_state(run, operation, checkpoint);
  });
}

// Whether `bytes` more are over the user's limit; what it replaces does not count. What unnamed saves left, and nobody
// samples from, makes room first: a loop that saves at each step would else end at the limit.
std::optional<Error> TrainingController::over_space(const Run& run, const Checkpoint& checkpoint, int64_t bytes) const {
  const int64_t limit = parts_.config.limits.checkpoint_bytes_per_user_max;
  if (limit <= 0) return std::nullopt;
  const CheckpointStore::Ptr replaced = parts_.checkpoints.find(checkpoint.path.str());
  int64_t used = 0;
  do {
    used = parts_.checkpoints.used_by(run.user) - (replaced == nullptr ? 0 : replaced->size_bytes);
    if (used + bytes <= limit) return std::nullopt;
  } while (bytes <= limit && parts_.sampling->drop_unnamed(run.user, quota_limit(Quota::kCheckpointBytes)));
  return over_quota(Quota::kCheckpointBytes,
                    "your checkpoints take " + std::to_string(used) + " bytes, this one takes " +
                        std::to_string(bytes) + " more, and " + std::to_string(limit) + " are allowed",
                    "delete some (deleted ones, and those of unnamed saves, count while samplers use them)");
}

// On the disk thread.
void TrainingController::save_state(const RunPtr& run, const OperationPtr& operation, Checkpoint checkpoint) {
  parts_.checkpoints.clean_up();
  int64_t expected = 0;
  {
    MutexLock lock(run->mutex);
    expected = checkpoint.path.kind == CheckpointKind::kTraining ? run->training_bytes : run->sampler_bytes;
  }
  if (auto over = over_space(*run, checkpoint, std::max<int64_t>(expected, 1))) {
    return conclude(run, operation, std::move(*over));
  }
  auto prepared = parts_.checkpoints.prepare(run->id, checkpoint.path.kind);
  if (!prepared.ok()) return conclude(run, operation, std::move(prepared).error());
  const std::filesystem::path directory = *prepared;
  operation->prepared = directory;
  operation->saved = std::make_unique<Checkpoint>(std::move(checkpoint));
  if (operation->version != nullptr) return save_version(run, operation);
  const bool with_optimizer = operation->saved->path.kind == CheckpointKind::kTraining;
  worker::v1::SaveStateRequest request;
  request.set_adapter_id(run->id.str());
  request.set_directory(directory.string());
  request.set_with_optimizer(with_optimizer);
  request.set_base_model(run->backend->name());
  const actor::CallOptions options = begin_call("training_backend.save_state", *operation);
  operation->backend_span.set_attribute("tuft.optimizer", with_optimizer);
  using Response = worker::v1::SaveStateResponse;
  run->backend->actor().save_state(std::move(request), options,
                                   answer_to<Response>(run, operation, &TrainingController::on_state_saved<Response>));
}

void TrainingController::save_version(const RunPtr& run, const OperationPtr& operation) {
  using Response = worker::v1::SaveSamplerResponse;
  worker::v1::SaveSamplerRequest request;
  request.set_sampler_id(operation->version->worker_id());
  request.set_directory(operation->prepared.string());
  request.set_base_model(run->backend->name());
  const actor::CallOptions options = begin_call("training_backend.save_sampler", *operation);
  run->backend->actor().save_sampler(
      std::move(request), options, answer_to<Response>(run, operation, &TrainingController::on_state_saved<Response>));
}

template <typename Response>
void TrainingController::on_state_saved(const RunPtr& run, const OperationPtr& operation, Result<Response> result) {
  if (!result.ok()) {
    // What a server that ends leaves is removed at the next start.
    (void)parts_.disk.post_rest(run->user, [weak = weak_from_this(), prepared = operation->prepared] {
      if (const auto self = weak.lock()) self->parts_.checkpoints.abandon(prepared);
    });
    return conclude(run, operation, without_path(std::move(result).error(), parts_.config.checkpoint_dir));
  }
  operation->saved->size_bytes = result->size_bytes();
  operation->span.set_attribute("tuft.size_bytes", result->size_bytes());
  on_disk(run, operation, true, [run, operation](TrainingController& self) { self.on_saved(run, operation); });
}

// On the disk thread.
void TrainingController::on_saved(const RunPtr& run, const OperationPtr& operation) {
  const std::filesystem::path prepared = operation->prepared;
  Checkpoint checkpoint = std::move(*operation->saved);
  checkpoint.created_at = iso_time(parts_.clock.wall());
  if (const auto ttl = ttl_of(*operation); ttl && !checkpoint.ephemeral) {
    checkpoint.expires_at = expiry_after(parts_.clock.wall(), *ttl);
  }
  {
    MutexLock lock(run->mutex);
    (checkpoint.path.kind == CheckpointKind::kTraining ? run->training_bytes : run->sampler_bytes) =
        checkpoint.size_bytes;
  }
  if (auto over = over_space(*run, checkpoint, checkpoint.size_bytes)) {
    parts_.checkpoints.abandon(prepared);
    return conclude(run, operation, std::move(*over));
  }
  const bool replaces = parts_.checkpoints.exists(checkpoint.path);
  auto published = parts_.checkpoints.publish(prepared, std::move(checkpoint));
  if (!published.ok()) {
    parts_.checkpoints.abandon(prepared);
    return conclude(run, operation, std::move(published).error());
  }
  if (replaces) {
    telemetry::get_metrics().checkpoint_removed.add(
        1, {{"checkpoint_type", checkpoint_type_name((*published)->path.kind)}, {"reason", "replaced"}});
  }
  conclude(run, operation, finish_save(run, *operation, *published));
}

Result<FutureValue> TrainingController::finish_save(const RunPtr& run, const RunOperation& operation,
                                                    const CheckpointStore::Ptr& saved) {
  const std::string path = saved->path.str();
  if (saved->path.kind == CheckpointKind::kTraining) {
    MutexLock lock(run->mutex);
    run->restore_point = RestorePoint{saved, true, operation.future->number, operation.seq_id};
    run->weights_changed = false;
  }
  // Not of ephemeral ones: no tool knows them, and each unnamed save would leave a record for ever.
  if (parts_.persistence.enabled() && !saved->ephemeral)
    parts_.persistence.write({parts_.persistence.put(*saved)}, operation.span.context());
  record_saved(*run, operation, operation.future->keys, *saved);
  if (operation.version != nullptr) parts_.sampling->take(run->backend, saved, *operation.version);
  if (saved->path.kind == CheckpointKind::kTraining) return FutureValue(SaveWeightsResult{path});
  if (!saved->ephemeral) return FutureValue(SaveWeightsForSamplerResult{path, std::nullopt});
  const auto& request = std::get<SaveWeightsForSampler>(operation.payload);
  auto sampler = parts_.sampling->create_on(run->user, run->session, *request.sampling_session_seq_id, saved,
                                            operation.span.context());
  if (!sampler.ok()) {
    parts_.checkpoints.forget(saved->path);
    return std::move(sampler).error();
  }
  return FutureValue(SaveWeightsForSamplerResult{std::nullopt, *sampler});
}

}  // namespace tuft::control
