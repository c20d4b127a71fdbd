// What of runs outlives the server, and how they come back.
#include <utility>

#include "control/operation_keys.h"
#include "control/training_controller.h"
#include "telemetry/log.h"
#include "telemetry/metrics.h"

namespace tuft::control {

RunSummary summary_of(const Run& run) {
  RunSummary summary{run.id, run.session, run.backend->name(), run.lora.rank, run.user_metadata};
  MutexLock lock(run.mutex);
  summary.last_request = run.last_request;
  summary.broken = run.broken.has_value();
  return summary;
}

RunRecord record_of_locked(const Run& run, std::string now) {
  RunRecord record;
  record.id = run.id;
  record.user = run.user;
  record.session = run.session;
  record.base_model = run.backend->name();
  record.lora = run.lora;
  record.seed = run.seed;
  record.lora_alpha = run.lora_alpha;
  record.user_metadata = run.user_metadata;
  record.target_modules = run.target_modules;
  record.created_at = run.created_at;
  record.last_request_at = std::move(now);
  record.next_seq_id = run.log.next_seq_id();
  record.next_training_name = run.next_training_name;
  record.next_sampler_name = run.next_sampler_name;
  record.next_ephemeral_name = run.next_ephemeral_name;
  if (run.restore_point) {
    const Checkpoint& checkpoint = *run.restore_point->checkpoint;
    record.restore_point = CheckpointRef{checkpoint.path.str(), checkpoint.future_number};
    record.restore_with_optimizer = run.restore_point->with_optimizer;
    record.restore_number = run.restore_point->number;
    record.restore_seq_id = run.restore_point->seq_id;
  }
  record.weights_changed = run.weights_changed;
  record.gradient_pending = run.gradient_pending;
  return record;
}

// What the store has to learn after an operation of the run.
std::vector<store::Change> TrainingController::changes_of(const Run& run) const {
  if (!parts_.persistence.enabled()) return {};
  MutexLock lock(run.mutex);
  if (!run.created) return {};
  if (run.closed) return {parts_.persistence.erase(run.id)};
  return {parts_.persistence.put(record_of_locked(run, iso_time(parts_.clock.wall())))};
}

// After a restart that undid operations their numbers are free. A client that goes back uses them again; one that lived
// on has used them up and comes with a higher one, which is then the next: nobody will send those between.
void TrainingController::open_numbers_locked(Run& run, const RunOperation& operation) const {
  if (!run.numbers_lost || !operation.seq_id) return;
  run.numbers_lost = false;
  const int64_t next = run.log.next_seq_id();
  if (*operation.seq_id > next) {
    run.log.start_at(*operation.seq_id);
  } else if (*operation.seq_id == next) {
    // It knows where the run is, so it need not be told.
    run.told_of_loss = true;
    run.notice.reset();
  }
}

void TrainingController::restore_run(const RestoredRun& restored) {
  const RunRecord& record = restored.record;
  // The futures that it was decided from are settled now, so the next restart must find the decision.
  parts_.persistence.write({parts_.persistence.put(record)}, {});
  const auto backend = parts_.backends.find(record.base_model);
  if (!backend.ok()) {
    telemetry::get_metrics().restore_runs.add(1, {{"result", "corrupted"}});
    telemetry::log_error("model.corrupted", "a model cannot come back: " + backend.error().message,
                         {{"tuft.training_run_id", record.id.str()}});
    return;
  }
  auto run = std::make_shared<Run>();
  run->id = record.id;
  run->user = record.user;
  run->session = record.session;
  run->backend = *backend;
  run->lora = record.lora;
  run->seed = record.seed;
  run->lora_alpha = record.lora_alpha;
  run->user_metadata = record.user_metadata;
  run->created_at = record.created_at;
  {
    MutexLock lock(run->mutex);
    run->created = true;
    run->last_request = parse_iso_time(record.last_request_at).value_or(0);
    run->target_modules = record.target_modules;
    run->log.start_at(record.next_seq_id);
    run->next_training_name = record.next_training_name;
    run->next_sampler_name = record.next_sampler_name;
    run->next_ephemeral_name = record.next_ephemeral_name;
    run->from_store = true;
    run->numbers_lost = restored.lost;
    run->weights_changed = restored.lost;
    if (restored.checkpoint != nullptr) {
      run->restore_point = RestorePoint{restored.checkpoint, record.restore_with_optimizer, record.restore_number,
                                        record.restore_seq_id};
    }
  }
  {
    MutexLock lock(mutex_);
    if (!insert_locked(run)) return;
  }
  run->backend->instruments().add_model(1);
  // The server ended while the session did.
  if (!parts_.sessions.exists(run->session)) begin_ending(run, SessionEnd::kSilent);
}

}  // namespace tuft::control
