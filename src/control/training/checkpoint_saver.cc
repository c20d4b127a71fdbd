#include "control/training/checkpoint_saver.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace tuft::control {

void CheckpointSaver::start(const RunPtr& run, const OperationPtr& operation) {
  auto save = parts_.writer.begin(*run, operation);
  if (!save.ok()) return parts_.executor.conclude(run, operation, std::move(save).error());
  const bool publishes = operation->type == OperationType::kSaveWeightsForSampler && run->backend()->config().sampling;
  if (publishes) return publish(run, *save);
  write(run, *save);
}

void CheckpointSaver::publish(const RunPtr& run, const CheckpointSavePtr& save) {
  int64_t expected = 0;
  {
    MutexLock lock(run->mutex);
    if (run->writes_behind) {
      run->after_write = save;
      return;
    }
    expected = run->sampler_bytes;
  }
  if (auto over = parts_.writer.check_room(*run, save->checkpoint, std::max<int64_t>(expected, 1))) {
    return parts_.executor.conclude(run, save->operation, std::move(*over));
  }
  const std::string worker_id = parts_.sampling.adapters().new_worker_id(save->checkpoint);
  if (save->version != nullptr) {  // under its former name, the worker would only repeat the answer of the call
    save->operation->call_id = save->operation->future->request.str() + worker_id.substr(worker_id.rfind('#'));
  }
  save->version = std::make_unique<PublishedVersion>(run->backend(), worker_id);
  worker::v1::PublishAdapterRequest request;
  request.set_adapter_id(run->id.str());
  request.set_sampler_id(save->version->worker_id());
  const actor::CallOptions options = parts_.calls.begin_call("training_backend.publish_adapter", *save->operation);
  run->backend()->actor().publish_adapter(
      std::move(request), options,
      parts_.calls.answer_to<worker::v1::PublishAdapterResponse>(
          save->operation, [this, run, save](auto result) { on_published(run, save, std::move(result)); }));
}

void CheckpointSaver::on_published(const RunPtr& run, const CheckpointSavePtr& save,
                                   Result<worker::v1::PublishAdapterResponse> result) {
  if (!result.ok()) return fail_version(run, save, std::move(result).error());
  save->version->note_published();
  if (!save->checkpoint.ephemeral || parts_.persistence.enabled()) return write(run, save);
  save->checkpoint.size_bytes = result->size_bytes();
  answer_before_file(run, save);
}

void CheckpointSaver::fail_version(const RunPtr& run, const CheckpointSavePtr& save, Error error) {
  if (error.reason != actor::kWorkerDisconnected) {
    return parts_.executor.conclude(run, save->operation, std::move(error));
  }
  parts_.cut.add(run, {[this, run, save](uint64_t) { publish(run, save); },
                       [this, run, save, error] { parts_.executor.conclude(run, save->operation, error); }});
}

void CheckpointSaver::answer_before_file(const RunPtr& run, const CheckpointSavePtr& save) {
  Checkpoint& checkpoint = save->checkpoint;
  checkpoint.created_at = iso_time(parts_.clock.wall());
  if (auto over = parts_.writer.check_room(*run, checkpoint, checkpoint.size_bytes)) {
    return parts_.executor.conclude(run, save->operation, std::move(*over));
  }
  save->answered = std::make_shared<const Checkpoint>(checkpoint);
  auto answer = answer_of(*run, *save, save->answered);
  if (answer.ok()) {
    MutexLock lock(run->mutex);
    run->writes_behind = true;
  }
  const bool writes = answer.ok();
  parts_.executor.conclude(run, save->operation, std::move(answer));
  if (writes) write(run, save);
}

void CheckpointSaver::write(const RunPtr& run, const CheckpointSavePtr& save) {
  parts_.writer.write(run, save, [this, run, save](Result<CheckpointPtr> written) {
    if (save->answered != nullptr) return on_written_behind(run, save, written);
    on_written(run, save, std::move(written));
  });
}

void CheckpointSaver::on_written(const RunPtr& run, const CheckpointSavePtr& save, Result<CheckpointPtr> written) {
  const OperationPtr& operation = save->operation;
  if (!written.ok() && save->version != nullptr) return fail_version(run, save, std::move(written).error());
  if (!written.ok()) return parts_.executor.conclude(run, operation, std::move(written).error());
  const CheckpointPtr& saved = *written;
  if (saved->path.kind == CheckpointKind::kTraining) {
    MutexLock lock(run->mutex);
    run->restore_point = RestorePoint{.checkpoint = saved,
                                      .with_optimizer = true,
                                      .number = operation->future->number,
                                      .seq_id = saved->seq_id,
                                      .lacks_gradient = run->gradient_pending,
                                      .hold = hold_checkpoint(saved, run->user)};
    run->journal.saved(run->gradient_pending);
    run->drain_not_before = 0;
    run->weights_changed = false;
  }
  if (saved->path.kind == CheckpointKind::kTraining && !operation->moves_run) parts_.writer.end_servers_save(*run);
  // Ephemeral checkpoints have no record: no tool shows them, and each unnamed save would leave one for ever.
  if (parts_.persistence.enabled() && !saved->ephemeral) {
    parts_.persistence.write(run->user, {parts_.persistence.put(*saved)}, operation->span.context());
  }
  parts_.telemetry.record_saved(*run, *operation, *saved);
  auto answer = answer_of(*run, *save, saved);
  if (!answer.ok()) parts_.writer.forget(*saved);
  parts_.executor.conclude(run, operation, std::move(answer));
}

void CheckpointSaver::on_written_behind(const RunPtr& run, const CheckpointSavePtr& save,
                                        const Result<CheckpointPtr>& written) {
  if (written.ok()) {
    parts_.telemetry.record_saved(*run, *save->operation, **written);
    if (!parts_.sampling.adapters().file_ended(*written)) parts_.writer.forget(**written);
  } else if (parts_.sampling.adapters().file_ended(save->answered)) {
    record_checkpoint_failure(*save->operation, written.error());
  }
  CheckpointSavePtr next;
  {
    MutexLock lock(run->mutex);
    run->writes_behind = false;
    next = std::exchange(run->after_write, nullptr);
  }
  if (next != nullptr) publish(run, next);
}

// Gives the published version to sampling, and makes the sampling session of an unnamed save.
Result<FutureValue> CheckpointSaver::answer_of(const Run& run, const CheckpointSave& save, const CheckpointPtr& saved) {
  if (save.version != nullptr) parts_.sampling.adapters().take(run.place.model(), saved, *save.version);
  const std::string path = saved->path.str();
  if (saved->path.kind == CheckpointKind::kTraining) return FutureValue(SaveWeightsResult{path});
  if (saved->path.kind == CheckpointKind::kExternal) {
    return FutureValue(SaveWeightsExternalResult{path, saved->size_bytes});
  }
  if (!saved->ephemeral) return FutureValue(SaveWeightsForSamplerResult{path, std::nullopt});
  const auto& request = std::get<SaveWeightsForSampler>(save.operation->payload);
  TUFT_ASSIGN(const SamplerId sampler, parts_.sampling.samplers().create(
                                           run.user, {run.session, *request.sampling_session_seq_id, request.inflight},
                                           run.place.model(), saved, save.operation->span.context()));
  return FutureValue(SaveWeightsForSamplerResult{std::nullopt, sampler});
}

}  // namespace tuft::control
