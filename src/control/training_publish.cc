// Saving for samplers: the weights are published in the worker's memory first, and the file follows.
#include <algorithm>
#include <utility>

#include "control/operation_keys.h"
#include "control/training_answers.h"
#include "control/training_controller.h"
#include "telemetry/log.h"
#include "telemetry/metrics.h"

namespace tuft::control {

// What is written after the answer. The operation has ended, and its future with it.
struct TrainingController::Behind {
  RunPtr run;
  OperationPtr operation;
  CheckpointStore::Ptr checkpoint;  // without files
  std::string worker_id;
  std::filesystem::path prepared;
  OperationKeys keys;
  telemetry::Span span;
};

// One file of a run is on its way behind an answer at a time: its next version waits for it, so that versions cannot
// pile up in the worker faster than the disk takes them.
void TrainingController::publish(const RunPtr& run, const OperationPtr& operation, Checkpoint checkpoint) {
  int64_t expected = 0;
  {
    MutexLock lock(run->mutex);
    if (run->writes_behind) {
      operation->saved = std::make_unique<Checkpoint>(std::move(checkpoint));
      run->after_write = operation;
      return;
    }
    expected = run->sampler_bytes;
  }
  if (auto over = over_space(*run, checkpoint, std::max<int64_t>(expected, 1))) {
    return conclude(run, operation, std::move(*over));
  }
  operation->version =
      std::make_unique<PublishedVersion>(run->backend, parts_.sampling->new_worker_id(checkpoint.path));
  operation->saved = std::make_unique<Checkpoint>(std::move(checkpoint));
  worker::v1::PublishAdapterRequest request;
  request.set_adapter_id(run->id.str());
  request.set_sampler_id(operation->version->worker_id());
  const actor::CallOptions options = begin_call("training_backend.publish_adapter", *operation);
  run->backend->actor().publish_adapter(
      std::move(request), options,
      answer_to<worker::v1::PublishAdapterResponse>(run, operation, &TrainingController::on_published));
}

void TrainingController::on_published(const RunPtr& run, const OperationPtr& operation,
                                      Result<worker::v1::PublishAdapterResponse> result) {
  if (!result.ok()) return conclude(run, operation, std::move(result).error());
  operation->version->note_published();
  // The answer of an unnamed save names nothing that has to outlive this process, unless the state does.
  if (operation->saved->ephemeral && !parts_.persistence.enabled()) {
    operation->saved->size_bytes = result->size_bytes();
    return answer_before_file(run, operation);
  }
  on_disk(run, operation, false, [run, operation](TrainingController& self) {
    self.save_state(run, operation, std::move(*operation->saved));
  });
}

void TrainingController::answer_before_file(const RunPtr& run, const OperationPtr& operation) {
  auto checkpoint = std::move(operation->saved);
  checkpoint->created_at = iso_time(parts_.clock.wall());
  if (auto over = over_space(*run, *checkpoint, checkpoint->size_bytes)) {
    return conclude(run, operation, std::move(*over));
  }
  auto behind = std::make_shared<Behind>();
  behind->run = run;
  behind->operation = operation;
  behind->checkpoint = std::move(checkpoint);
  behind->worker_id = operation->version->worker_id();
  behind->keys = operation->future->keys;
  parts_.sampling->take(run->backend, behind->checkpoint, *operation->version);
  const auto& request = std::get<SaveWeightsForSampler>(operation->payload);
  auto sampler = parts_.sampling->create_on(run->user, run->session, *request.sampling_session_seq_id,
                                            behind->checkpoint, operation->span.context());
  if (!sampler.ok()) return conclude(run, operation, std::move(sampler).error());
  {
    MutexLock lock(run->mutex);
    run->writes_behind = true;
  }
  conclude(run, operation, FutureValue(SaveWeightsForSamplerResult{std::nullopt, *sampler}));
  const bool posted = parts_.disk.post_rest(run->user, [weak = weak_from_this(), behind] {
    if (const auto self = weak.lock()) self->write_behind(behind);
  });
  if (!posted) end_behind(behind, unavailable("the server is shutting down", "shutting_down"));
}

// On the disk thread.
void TrainingController::write_behind(const std::shared_ptr<Behind>& behind) {
  parts_.checkpoints.clean_up();
  auto prepared = parts_.checkpoints.prepare(behind->run->id, CheckpointKind::kSampler);
  if (!prepared.ok()) return end_behind(behind, std::move(prepared).error());
  behind->prepared = *prepared;
  worker::v1::SaveSamplerRequest request;
  request.set_sampler_id(behind->worker_id);
  request.set_directory(behind->prepared.string());
  request.set_base_model(behind->run->backend->name());
  behind->span = training_backend_tracer().start_span(
      "training_backend.save_sampler",
      {.attributes = KeyAttributes(behind->keys, {{"tuft.lora_id", behind->worker_id}}),
       .parent = behind->operation->span.context()});
  behind->run->backend->actor().save_sampler(
      std::move(request), {.trace = behind->span.context(), .ids = call_ids(behind->keys)},
      [weak = weak_from_this(), behind](const Result<worker::v1::SaveSamplerResponse>& result) {
        if (!result.ok()) behind->span.record_error(result.error());
        behind->span.end();
        const auto self = weak.lock();
        if (self == nullptr) return;
        const bool posted = self->parts_.disk.post_rest(behind->run->user, [weak, behind, result] {
          if (const auto still = weak.lock()) still->on_written_behind(behind, result);
        });
        if (!posted) self->end_behind(behind, unavailable("the server is shutting down", "shutting_down"));
      });
}

// On the disk thread.
void TrainingController::on_written_behind(const std::shared_ptr<Behind>& behind,
                                           const Result<worker::v1::SaveSamplerResponse>& result) {
  Result<CheckpointStore::Ptr> published = internal_error("unset");
  if (result.ok()) {
    Checkpoint checkpoint = *behind->checkpoint;
    checkpoint.size_bytes = result->size_bytes();
    published = parts_.checkpoints.publish(behind->prepared, std::move(checkpoint));
  } else {
    published = result.error();
  }
  if (!published.ok()) {
    parts_.checkpoints.abandon(behind->prepared);
    return end_behind(behind, without_path(published.error(), parts_.config.checkpoint_dir));
  }
  {
    MutexLock lock(behind->run->mutex);
    behind->run->sampler_bytes = (*published)->size_bytes;
  }
  record_saved(*behind->run, *behind->operation, behind->keys, **published);
  if (!parts_.sampling->file_written(*behind->run->backend, *published)) parts_.checkpoints.forget((*published)->path);
  end_behind(behind, {});
}

// Any thread. The run's next version has its turn now.
void TrainingController::end_behind(const std::shared_ptr<Behind>& behind, const Status& status) {
  const RunPtr& run = behind->run;
  // Where its sampler has gone before the file was there, nobody misses it.
  if (!status.ok() && parts_.sampling->file_failed(*run->backend, behind->checkpoint)) {
    record_checkpoint_failure(*behind->operation, behind->keys, status.error());
  }
  OperationPtr next;
  {
    MutexLock lock(run->mutex);
    run->writes_behind = false;
    next = std::exchange(run->after_write, nullptr);
  }
  if (next != nullptr) publish(run, next, std::move(*next->saved));
}

}  // namespace tuft::control
