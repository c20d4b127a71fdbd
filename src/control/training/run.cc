#include "control/training/run.h"

#include <algorithm>
#include <utility>

#include "control/accounts/quota.h"

namespace tuft::control {
namespace {

RunRecord record_of_locked(const Run& run, Nanos wall) TUFT_REQUIRES(run.mutex) {
  RunRecord record;
  record.id = run.id;
  record.user = run.user;
  record.session = run.session;
  record.base_model = run.backend()->name();
  record.lora = run.lora;
  record.optimizer = run.optimizer;
  record.seed = run.seed;
  record.lora_alpha = run.lora_alpha;
  record.metadata_apart = run.metadata_apart;
  if (!run.metadata_apart) record.user_metadata = run.user_metadata;
  record.target_modules = run.target_modules;
  record.created_at = run.created_at;
  record.last_request_at = iso_time(wall);
  record.next_seq_id = run.log.next_seq_id();
  record.next_training_name = run.next_training_name;
  record.next_sampler_name = run.next_sampler_name;
  record.next_ephemeral_name = run.next_ephemeral_name;
  if (run.restore_point) {
    const CheckpointPtr& checkpoint = run.restore_point->checkpoint;
    record.restore_point = checkpoint == nullptr ? run.restore_point->missing
                                                 : CheckpointRef{checkpoint->path.str(), checkpoint->future_number};
    record.restore_with_optimizer = run.restore_point->with_optimizer;
    record.restore_number = run.restore_point->number;
    record.restore_seq_id = run.restore_point->seq_id;
    record.restore_lacks_gradient = run.restore_point->lacks_gradient;
  }
  record.weights_changed = run.weights_changed;
  record.gradient_pending = run.gradient_pending;
  record.last_operation = run.last_operation;
  return record;
}

}  // namespace

void RunEnding::note(const RunOperation& operation, const Result<FutureValue>& result) {
  if (result.ok() || !operation.ends_run) {
    tries = 0;
    not_before = 0;
    return;
  }
  const bool again = is_retryable(result.error().code) && !is_over_checkpoints(result.error().reason);
  tries = again ? tries + 1 : kTriesMax;
  if (tries >= kTriesMax) not_before = 0;  // nothing is waited for before the next step
}

RunSummary summary_of(const Run& run) {
  RunSummary summary{run.id, run.session, run.backend()->name(), run.lora.rank, run.user_metadata};
  MutexLock lock(run.mutex);
  summary.optimizer = run.optimizer;
  summary.created_at = run.created_at;
  summary.last_request = run.last_request;
  summary.broken = run.broken.has_value();
  return summary;
}

ModelInfo info_of(const Run& run) {
  const config::ModelConfig& model = run.backend()->config();
  // Clients can load "owner/name", a name of Hugging Face, from anywhere. Any other name means something on this
  // machine only, where the model's directory holds the tokenizer.
  const size_t slash = model.model_name.find('/');
  const bool is_hub_name = slash != model.model_name.npos && slash != 0 && slash == model.model_name.rfind('/');
  return ModelInfo{run.id,
                   model.model_name,
                   run.place.model()->facts().architecture(),
                   is_hub_name ? model.model_name : model.model_path.string(),
                   run.lora.rank,
                   run.optimizer};
}

std::string submission_key(const RunId& run, int64_t seq_id) {
  return run.str() + '#' + std::to_string(seq_id);
}

std::string call_id_of(const RunOperation& operation) {
  return operation.call_id.empty() ? operation.future->request.str() : operation.call_id;
}

OperationKeys keys_of(const Run& run) {
  OperationKeys keys;
  keys.user = run.user;
  keys.session = run.session;
  keys.run = run.id;
  keys.base_model = run.backend()->name();
  keys.lora_rank = run.lora.rank;
  return keys;
}

void release_payload(Run& run, RunOperation& operation) {
  RunOperation::Payload payload;  // destroyed without the lock
  MutexLock lock(run.mutex);
  payload.swap(operation.payload);
  operation.memory.shrink_to(FutureStore::kOperationBytes);
}

std::vector<store::Change> changes_of(const Run& run, const Persistence& persistence, Nanos wall) {
  if (!persistence.enabled()) return {};
  std::vector<store::Change> changes;
  MutexLock lock(run.mutex);
  if (!run.created) return {};
  if (run.closed) {
    changes.push_back(persistence.erase(run.id));
    if (run.metadata_apart) changes.push_back(persistence.erase_metadata(run.id));
    return changes;
  }
  if (run.metadata_apart && !std::exchange(run.metadata_written, true)) {
    changes.push_back(persistence.put(RunMetadataRecord{run.id, run.user_metadata}));
  }
  changes.push_back(persistence.put(record_of_locked(run, wall)));
  return changes;
}

std::string name_of_save(std::string_view why, Nanos wall) {
  std::string name(why);
  name.push_back('-');
  for (const char c : iso_time(wall)) {
    if (c == '.' || c == '+') break;
    if (c != '-' && c != ':') name.push_back(c);
  }
  return name + 'Z';
}

RunPtr run_of(const RestoredRun& restored, const ModelPtr& model, const ModelBackendPtr& worker) {
  const RunRecord& record = restored.record;
  auto run = std::make_shared<Run>(model, worker, record.lora);
  run->id = record.id;
  run->user = record.user;
  run->session = record.session;
  run->optimizer = record.optimizer;
  run->seed = record.seed;
  run->lora_alpha = record.lora_alpha;
  run->user_metadata = record.user_metadata;
  run->metadata_apart = record.metadata_apart;
  run->created_at = record.created_at;
  const MutexLock order(run->record_mutex);
  run->metadata_written = true;
  MutexLock lock(run->mutex);
  run->created = true;
  run->last_request = parse_iso_time(record.last_request_at).value_or(0);
  run->target_modules = record.target_modules;
  run->log.start_at(record.next_seq_id);
  for (const int64_t seq_id : restored.finished_seq_ids) run->log.note_used(seq_id);
  int64_t last_seq_id = record.next_seq_id - 1;
  for (const FutureRecord& waits : restored.unfinished) {
    if (waits.keys.seq_id) last_seq_id = std::min(last_seq_id, *waits.keys.seq_id - 1);
  }
  if (last_seq_id > 0) run->last_seq_id = last_seq_id;
  run->next_training_name = record.next_training_name;
  run->next_sampler_name = record.next_sampler_name;
  run->next_ephemeral_name = record.next_ephemeral_name;
  run->from_store = true;
  run->numbers_lost = restored.lost;
  run->gradient_lost = restored.lost && record.restore_lacks_gradient;
  run->weights_changed = restored.lost || (restored.hopes() && record.weights_changed);
  run->gradient_pending = restored.hopes() && record.gradient_pending;
  run->last_operation = record.last_operation;
  run->hopes = restored.hopes();
  if (run->weights_changed || run->gradient_pending) run->journal.give_up();
  if (record.restore_point) {
    run->restore_point = RestorePoint{.checkpoint = restored.checkpoint,
                                      .with_optimizer = record.restore_with_optimizer,
                                      .number = record.restore_number,
                                      .seq_id = record.restore_seq_id,
                                      .lacks_gradient = record.restore_lacks_gradient,
                                      .missing = *record.restore_point,
                                      .hold = hold_checkpoint(restored.checkpoint, record.user)};
  }
  if (restored.checkpoint != nullptr && restored.checkpoint->servers_save) {
    run->moved_name = restored.checkpoint->path.name;
  }
  return run;
}

}  // namespace tuft::control
