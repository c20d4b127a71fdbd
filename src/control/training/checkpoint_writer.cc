#include "control/training/checkpoint_writer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/file.h"
#include "control/accounts/quota.h"
#include "control/sessions/session_description.h"
#include "control/types/errors.h"
#include "control/types/operation_keys.h"
#include "metrics/training.h"
#include "telemetry/context.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

int64_t& bytes_of_newest_locked(Run& run, CheckpointKind kind) TUFT_REQUIRES(run.mutex) {
  return kind == CheckpointKind::kTraining ? run.training_bytes : run.sampler_bytes;
}

}  // namespace

Result<CheckpointSavePtr> CheckpointWriter::begin(Run& run, const OperationPtr& operation) const {
  auto save = std::make_shared<CheckpointSave>();
  save->operation = operation;
  Checkpoint& checkpoint = save->checkpoint;
  bool overwrite = true;  // a sampler save replaces; open sampling sessions keep the files that they have
  int* counter = nullptr;
  {
    MutexLock lock(run.mutex);
    checkpoint.target_modules = run.target_modules;
    if (const auto* request = std::get_if<SaveWeights>(&operation->payload)) {
      checkpoint.path = {run.id, CheckpointKind::kTraining, request->name};
      save->ttl_seconds = request->ttl_seconds;
      overwrite = request->overwrite;
      checkpoint.own_metadata = request->user_metadata;
      counter = &run.next_training_name;
    } else if (const auto* external = std::get_if<SaveWeightsExternal>(&operation->payload)) {
      checkpoint.path = {run.id, CheckpointKind::kExternal, external->name};
      save->ttl_seconds = external->ttl_seconds;
      overwrite = false;  // its addresses may be in use
      checkpoint.own_metadata = external->user_metadata;
      if (external->age_recipients) {
        TUFT_ASSIGN(save->recipients, age::parse_recipients(*external->age_recipients));
        checkpoint.encrypted = true;
      }
    } else {
      const auto& sampler_request = std::get<SaveWeightsForSampler>(operation->payload);
      checkpoint.path = {run.id, CheckpointKind::kSampler, sampler_request.name};
      checkpoint.ephemeral = sampler_request.name.empty() && sampler_request.sampling_session_seq_id.has_value();
      save->ttl_seconds = sampler_request.ttl_seconds;
      checkpoint.own_metadata = sampler_request.user_metadata;
      counter = checkpoint.ephemeral ? &run.next_ephemeral_name : &run.next_sampler_name;
    }
    if (checkpoint.path.name.empty()) {
      checkpoint.path.name = parts_.checkpoints.free_name(run.id, checkpoint.path.kind,
                                                          checkpoint.ephemeral ? "ephemeral-" : "checkpoint-", counter);
    }
  }
  if (!overwrite && parts_.checkpoints.exists(checkpoint.path)) {
    return Error{
        ErrorCode::kAlreadyExists,
        "checkpoint " + checkpoint.path.str() + " already exists; " +
            (checkpoint.path.kind == CheckpointKind::kExternal ? "delete it" : "pass overwrite=True to replace it") +
            " or choose another name",
        "checkpoint_exists"};
  }
  checkpoint.owner = run.user;
  checkpoint.session = run.session;
  checkpoint.base_model = run.backend()->name();
  checkpoint.user_metadata = run.user_metadata;
  checkpoint.project_id = parts_.sessions.project_of(run.session).value_or("");
  checkpoint.lora_rank = run.lora.rank;
  checkpoint.lora_alpha = run.lora_alpha;
  checkpoint.train_attn = run.lora.train_attn;
  checkpoint.train_mlp = run.lora.train_mlp;
  checkpoint.train_unembed = run.lora.train_unembed;
  checkpoint.optimizer = run.optimizer;
  checkpoint.future_number = operation->future->number;
  checkpoint.seq_id = operation->seq_id;
  if (operation->moves_run) {  // it has what its client did until then
    checkpoint.servers_save = true;
    MutexLock lock(run.mutex);
    checkpoint.seq_id = run.last_seq_id;
  }
  return save;
}

CheckpointPtr CheckpointWriter::servers_save_of(const Run& run) const {
  std::string name;
  {
    MutexLock lock(run.mutex);
    name = run.moved_name;
  }
  if (name.empty()) return nullptr;
  // A client may have saved under the same name, or have set the expiry of what the server saved.
  CheckpointPtr found = parts_.checkpoints.find(CheckpointPath{run.id, CheckpointKind::kTraining, name}.str());
  return found != nullptr && found->servers_save ? found : nullptr;
}

void CheckpointWriter::end_servers_save(const Run& run) const {
  const CheckpointPtr saved = servers_save_of(run);
  if (saved == nullptr) return;
  // If it was deleted or replaced meanwhile, nothing is left to do.
  (void)parts_.checkpoints.update(saved,
                                  [now = parts_.clock.wall()](Checkpoint& checkpoint) { checkpoint.expires_at = now; });
}

std::optional<Error> CheckpointWriter::check_room(const Run& run, const Checkpoint& checkpoint, int64_t bytes) const {
  const config::Limits& limits = parts_.config.limits;
  const CheckpointUse limit{limits.checkpoint_bytes_per_user_max, limits.checkpoints_per_user_max};
  const CheckpointPtr replaced = parts_.checkpoints.find(checkpoint.path.str());
  const CheckpointPtr servers = servers_save_of(run);
  CheckpointUse freed = replaced == nullptr ? CheckpointUse{} : use_of(*replaced);
  if (servers != nullptr && servers != replaced) {
    freed.bytes += use_of(*servers).bytes;
    freed.count += use_of(*servers).count;
  }
  const CheckpointUse more{bytes, use_of(checkpoint).count};
  CheckpointUse used;
  std::optional<Quota> quota;
  do {
    used = parts_.checkpoints.used_by(run.user);
    used.bytes -= freed.bytes;
    used.count -= freed.count;
    quota = exceeded(used, more, limit);
    if (!quota) return std::nullopt;
  } while (!exceeded({}, more, limit) && parts_.samplers.drop_unnamed(run.user, quota_limit(*quota)));
  return over_checkpoints(used, more, limit);
}

void CheckpointWriter::write(const RunPtr& run, const CheckpointSavePtr& save, const Done& done) const {
  auto task = parts_.lifetime.guard([this, run, save, done] { prepare(run, save, done); });
  Status posted;
  if (save->answered == nullptr) {
    posted = parts_.disk.post(run->user, std::move(task));
  } else if (!parts_.disk.post_rest(run->user, std::move(task))) {
    posted = shutting_down();
  }
  if (!posted.ok()) done(std::move(posted).error());
}

// Runs on the disk thread.
void CheckpointWriter::prepare(const RunPtr& run, const CheckpointSavePtr& save, const Done& done) const {
  parts_.checkpoints.clean_up();
  const Checkpoint& checkpoint = save->checkpoint;
  if (save->answered == nullptr && !save->operation->moves_run) {
    int64_t expected = 0;
    {
      MutexLock lock(run->mutex);
      expected = bytes_of_newest_locked(*run, checkpoint.path.kind);
    }
    if (auto over = check_room(*run, checkpoint, std::max<int64_t>(expected, 1))) return done(std::move(*over));
  }
  auto prepared = parts_.checkpoints.storage().prepare(run->id, checkpoint.path.kind);
  if (!prepared.ok()) return done(std::move(prepared).error());
  save->prepared = std::move(*prepared);
  call_worker(run, save, done);
}

void CheckpointWriter::call_worker(const RunPtr& run, const CheckpointSavePtr& save, const Done& done) const {
  RunOperation& operation = *save->operation;
  if (save->version != nullptr) {
    const std::string& sampler = save->version->worker_id();
    worker::v1::SaveSamplerRequest request;
    request.set_sampler_id(sampler);
    request.set_directory(save->prepared.string());
    request.set_base_model(run->backend()->name());
    const actor::CallOptions options =
        parts_.calls.begin_call("training_backend.save_sampler", operation,
                                save->answered == nullptr ? std::string_view() : std::string_view(sampler));
    run->backend()->actor().save_sampler(
        std::move(request), options,
        parts_.calls.answer_to<worker::v1::SaveSamplerResponse>(
            save->operation, after_write<worker::v1::SaveSamplerResponse>(run, save, done)));
    return;
  }
  const bool with_optimizer = save->checkpoint.path.kind == CheckpointKind::kTraining;
  const auto request = std::make_shared<worker::v1::SaveStateRequest>();
  request->set_adapter_id(run->id.str());
  request->set_directory(save->prepared.string());
  request->set_with_optimizer(with_optimizer);
  request->set_base_model(run->backend()->name());
  const actor::CallOptions options = parts_.calls.begin_call("training_backend.save_state", operation);
  operation.backend_span.set_attribute("tuft.optimizer", with_optimizer);
  parts_.calls.execute<rpc::SaveState>(run, save->operation, request, options,
                                       after_write<worker::v1::SaveStateResponse>(run, save, done));
}

template <typename Response>
actor::Callback<Response> CheckpointWriter::after_write(const RunPtr& run, const CheckpointSavePtr& save,
                                                        const Done& done) const {
  return [this, run, save, done](Result<Response> result) {
    if (!result.ok()) {
      // If the server ends first, the next start removes the directory.
      (void)parts_.disk.post_rest(run->user, parts_.lifetime.guard([this, prepared = save->prepared] {
        parts_.checkpoints.storage().discard(prepared);
      }));
      if (result.error().reason == kDiskFull) {
        telemetry::log_error("checkpoint.storage.failed", "the worker cannot write: " + result.error().message,
                             KeyAttributes(save->operation->future->keys));
        return done(disk_is_full());
      }
      return done(without_path(std::move(result).error(), parts_.config.checkpoint_dir));
    }
    save->checkpoint.size_bytes = result->size_bytes() + static_cast<int64_t>(memory_of(save->checkpoint.own_metadata));
    save->operation->span.set_attribute("tuft.size_bytes", result->size_bytes());
    const bool posted = parts_.disk.post_rest(run->user, parts_.lifetime.guard([this, run, save, done] {
      save->recipients.empty() ? commit(run, save, done) : seal(run, save, done);
    }));
    if (!posted) done(shutting_down());
  };
}

// Runs on the disk thread. Each step is a task of its own, so that others have their turns between them.
void CheckpointWriter::seal(const RunPtr& run, const CheckpointSavePtr& save, const Done& done) const {
  const telemetry::ContextScope scope(save->operation->span.context());
  CheckpointStorage& storage = parts_.checkpoints.storage();
  if (save->sealed == nullptr) {
    auto entered = storage.enter_directory(save->prepared, external_files());
    if (!entered.ok()) {
      storage.discard(save->prepared);
      return done(std::move(entered).error());
    }
    save->directory = std::move(*entered);
    save->sealed = std::make_unique<age::SealedFiles>(save->directory, external_files(), save->recipients);
  }
  const Result<bool> is_done = save->sealed->advance();
  if (is_done.ok() && !*is_done) {
    const bool posted =
        parts_.disk.post_rest(run->user, parts_.lifetime.guard([this, run, save, done] { seal(run, save, done); }));
    if (!posted) done(shutting_down());
    return;
  }
  if (is_done.ok()) save->checkpoint.size_bytes += save->sealed->growth();
  save->sealed.reset();
  const Status left = storage.leave_directory(save->prepared, save->directory, external_files(), is_done.ok());
  if (is_done.ok() && left.ok()) return commit(run, save, done);
  storage.discard(save->prepared);
  done(is_done.ok() ? left.error() : is_done.error());
}

// Runs on the disk thread.
void CheckpointWriter::commit(const RunPtr& run, const CheckpointSavePtr& save, const Done& done) const {
  const telemetry::ContextScope scope(save->operation->span.context());
  Checkpoint checkpoint = std::move(save->checkpoint);
  if (checkpoint.created_at.empty()) checkpoint.created_at = iso_time(parts_.clock.wall());
  if (save->ttl_seconds && !checkpoint.ephemeral) {
    checkpoint.expires_at = expiry_after(parts_.clock.wall(), *save->ttl_seconds);
  }
  {
    MutexLock lock(run->mutex);
    bytes_of_newest_locked(*run, checkpoint.path.kind) = checkpoint.size_bytes;
  }
  if (save->answered == nullptr) {
    auto over = save->operation->moves_run ? std::nullopt : check_room(*run, checkpoint, checkpoint.size_bytes);
    if (over) {
      parts_.checkpoints.storage().discard(save->prepared);
      return done(std::move(*over));
    }
  }
  const bool replaces = parts_.checkpoints.exists(checkpoint.path);
  auto committed = parts_.checkpoints.commit(save->prepared, std::move(checkpoint));
  if (!committed.ok()) {
    parts_.checkpoints.storage().discard(save->prepared);
    return done(std::move(committed).error());
  }
  if (replaces) {
    metrics::training().checkpoint_removed.add(
        1, {{"checkpoint_type", checkpoint_type_name((*committed)->path.kind)}, {"reason", "replaced"}});
  }
  done(std::move(committed));
}

}  // namespace tuft::control
