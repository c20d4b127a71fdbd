#include "control/training_controller.h"

#include <utility>

#include "control/quota.h"
#include "telemetry/metrics.h"

namespace tuft::control {
namespace {

bool worker_is_gone(const Error& error) {
  return error.code == ErrorCode::kUnavailable;
}

}  // namespace

Result<RunPtr> TrainingController::find(const UserId& user, const RunId& run) const {
  RunPtr found;
  {
    MutexLock lock(mutex_);
    const auto entry = runs_.find(run);
    if (entry != runs_.end() && entry->second->user == user) found = entry->second;
  }
  bool is_there = found != nullptr;
  if (is_there) {
    MutexLock lock(found->mutex);
    is_there = !found->ending;
  }
  if (!is_there) return unknown_run(user, run);
  return found;
}

Result<RunPtr> TrainingController::add_run(const UserId& user, const CreateModel& request,
                                           const std::shared_ptr<ModelBackend>& backend, double lora_alpha,
                                           bool* added) {
  auto run = std::make_shared<Run>();
  run->id = run_id_of(request.session, request.model_seq_id);
  run->user = user;
  run->session = request.session;
  run->backend = backend;
  run->lora = request.lora;
  run->seed = request.lora.seed.value_or(random_u64());
  run->lora_alpha = lora_alpha;
  run->user_metadata = request.user_metadata;
  run->created_at = iso_time(parts_.clock.wall());
  const int limit = parts_.config.limits.runs_per_user_max;
  for (bool reclaimed = false;; reclaimed = true) {
    {
      MutexLock lock(mutex_);
      if (const auto found = runs_.find(run->id); found != runs_.end()) return found->second;
      const auto tenant = tenants_.find(user);
      if ((tenant == tenants_.end() ? 0 : tenant->second.counted) < limit) {
        *added = insert_locked(run);
        return run;
      }
    }
    if (reclaimed || !end_idle_run(user)) break;
  }
  return over_quota(Quota::kRuns, "you have " + std::to_string(limit) + " training runs",
                    "unload some (those of a session that was silent for ten minutes make room by themselves)");
}

void TrainingController::enqueue(const RunPtr& run, const OperationPtr& operation) {
  using Place = OperationLog<RunOperation>::Place;
  operation->placed = parts_.clock.monotonic();
  Place place = Place::kPassed;
  bool closed = false;
  int64_t next = 0;
  {
    MutexLock lock(run->mutex);
    closed = run->closed || (run->ending && !operation->ends_run);
    run->last_request = parts_.clock.wall();
    if (!closed) open_numbers_locked(*run, *operation);
    if (!closed) place = run->log.place(operation);
    next = run->log.next_seq_id();
  }
  if (closed) return fail(run, operation, unknown_run(run->user, run->id));
  if (place == Place::kPassed) {
    return fail(run, operation,
                failed_precondition("seq_id " + std::to_string(operation->seq_id.value_or(0)) +
                                        " of this run has been used up or given up, and its result is not "
                                        "kept any more; the next is " +
                                        std::to_string(next),
                                    "seq_id_passed"));
  }
  if (place == Place::kBuffered) {
    telemetry::get_metrics().sequence_guard_out_of_order.add(1, {{"operation_type", operation_name(operation->type)}});
    return;
  }
  pump(run);
}

bool TrainingController::can_start_locked(const Run& run) {
  const RunOperation* front = run.running == nullptr ? run.log.front() : nullptr;
  if (front == nullptr) return false;
  const bool ready = front->creates_run ? run.backend->actor().ready() : run.backend->holds(run.adapter_generation);
  return ready || run.closed || run.broken;
}

// Where something of the run could go to the worker, lines the run up for it.
void TrainingController::pump(const RunPtr& run) {
  int64_t cost = 0;
  {
    MutexLock lock(run->mutex);
    if (run->queued || !can_start_locked(*run)) return;
    run->queued = true;
    cost = run->log.front()->cost;
  }
  run->backend->training_queue().submit({.user = run->user, .cost = cost, .start = [weak = weak_from_this(), run] {
                                           const auto self = weak.lock();
                                           return self != nullptr && self->start_turn(run);
                                         }});
}

// False: there is nothing to start any more, or not now.
bool TrainingController::start_turn(const RunPtr& run) {
  OperationPtr operation;
  {
    MutexLock lock(run->mutex);
    run->queued = false;
    if (!can_start_locked(*run)) return false;
    operation = run->running = run->log.take();
    operation->has_slot = true;
    operation->generation = operation->creates_run ? run->backend->actor().generation() : run->adapter_generation;
  }
  start(run, operation);
  return true;
}

void TrainingController::conclude(const RunPtr& run, const OperationPtr& operation, Result<FutureValue> result) {
  std::vector<OperationPtr> dropped;
  {
    MutexLock lock(run->mutex);
    if (result.ok()) run->told_of_loss = false;
    if (!result.ok() && worker_is_gone(result.error()) && operation->generation == run->adapter_generation) {
      dropped = run->log.drain();
      run->told_of_loss = true;
    }
    note_ending_locked(*run, *operation, result);
  }
  if (!result.ok()) {
    operation->span.record_error(result.error());
    record_checkpoint_failure(*operation, operation->future->keys, result.error());
  }
  operation->span.end();
  // Before the future ends, so that who sees that finds the memory free.
  let_go(*run, *operation);
  if (parts_.persistence.enabled()) {
    const MutexLock order(run->record_mutex);
    parts_.futures.complete(operation->future, std::move(result), changes_of(*run));
  } else {
    parts_.futures.complete(operation->future, std::move(result));
  }
  {
    // Only now, so that the next operation's result is written after this one's.
    MutexLock lock(run->mutex);
    if (run->running == operation) run->running = nullptr;
  }
  const Error lost = unavailable("not executed: the worker of base model " + run->backend->name() +
                                     " ended while an earlier operation of this run was executed",
                                 "worker_died");
  for (const OperationPtr& other : dropped) fail(run, other, lost);
  if (operation->has_slot) run->backend->training_queue().release(1);
  pump(run);
  go_on_ending(run);
}

// A cancelled operation keeps its place in the log, and this is all that it keeps.
void TrainingController::let_go(Run& run, RunOperation& operation) {
  decltype(operation.payload) payload;  // destroyed without the lock
  MutexLock lock(run.mutex);
  payload.swap(operation.payload);
  operation.memory.shrink_to(FutureStore::kOperationBytes);
}

void TrainingController::fail(const RunPtr& run, const OperationPtr& operation, const Error& error) {
  let_go(*run, *operation);
  operation->span.record_error(error);
  record_checkpoint_failure(*operation, operation->future->keys, error);
  operation->span.end();
  parts_.futures.complete(operation->future, error);
}

void TrainingController::remove_run(const RunPtr& run, const Error& why) {
  std::vector<OperationPtr> left;
  bool was_created = false;
  bool was_counted = false;
  {
    MutexLock lock(run->mutex);
    if (run->closed) return;
    run->closed = true;
    was_created = run->created;
    was_counted = !run->ending;
    left = run->log.drain();
  }
  {
    MutexLock lock(mutex_);
    runs_.erase(run->id);
    tenants_[run->user].runs.erase(run);
    uncount_locked(run->user, was_counted ? 1 : 0);
  }
  if (was_created) run->backend->instruments().add_model(-1);
  for (const OperationPtr& operation : left) fail(run, operation, why);
}

void TrainingController::uncount_locked(const UserId& user, int count) {
  const auto tenant = tenants_.find(user);
  tenant->second.counted -= count;
  if (tenant->second.counted == 0 && tenant->second.runs.empty()) tenants_.erase(tenant);
}

// False: it is there already.
bool TrainingController::insert_locked(const RunPtr& run) {
  if (!runs_.emplace(run->id, run).second) return false;
  Tenant& tenant = tenants_[run->user];
  tenant.runs.insert(run);
  ++tenant.counted;
  return true;
}

std::vector<RunSummary> TrainingController::runs_of(const UserId& user) const {
  std::vector<RunSummary> summaries;
  for (const RunPtr& run : users_runs(user)) summaries.push_back(summary_of(*run));
  return summaries;
}

std::optional<RunSummary> TrainingController::run_of(const UserId& user, const RunId& id) const {
  RunPtr run;
  {
    MutexLock lock(mutex_);
    const auto found = runs_.find(id);
    if (found == runs_.end() || found->second->user != user) return std::nullopt;
    run = found->second;
  }
  return summary_of(*run);
}

std::vector<RunPtr> TrainingController::users_runs(const UserId& user) const {
  MutexLock lock(mutex_);
  const auto tenant = tenants_.find(user);
  if (tenant == tenants_.end()) return {};
  return {tenant->second.runs.begin(), tenant->second.runs.end()};
}

std::vector<RunPtr> TrainingController::session_runs(const UserId& user, const SessionId& session) const {
  std::vector<RunPtr> runs = users_runs(user);
  std::erase_if(runs, [&session](const RunPtr& run) { return run->session != session; });
  return runs;
}

std::vector<RunPtr> TrainingController::all_runs() const {
  std::vector<RunPtr> runs;
  MutexLock lock(mutex_);
  runs.reserve(runs_.size());
  for (const auto& entry : runs_) runs.push_back(entry.second);
  return runs;
}

void TrainingController::sweep() {
  for (const RunPtr& run : all_runs()) sweep_run(run);
}

void TrainingController::sweep_run(const RunPtr& run) {
  const Nanos now = parts_.clock.monotonic();
  std::vector<OperationPtr> given_up;
  std::vector<OperationPtr> unserved;
  int64_t missing = 0;
  {
    MutexLock lock(run->mutex);
    const bool idle = run->log.empty() && !run->ending;
    if (idle) return;
    if (run->log.has_gap()) {
      given_up = run->log.give_up_gap(now - parts_.config.limits.gap_timeout_seconds * kSecond, &missing);
    }
    while (run->running == nullptr && run->log.front() != nullptr && run->log.front()->placed <= now - kWorkerWait &&
           !run->backend->holds(run->adapter_generation)) {
      if (run->log.front()->creates_run && run->backend->actor().ready()) break;
      unserved.push_back(run->log.take());
    }
  }
  for (const OperationPtr& operation : given_up) {
    fail(run, operation,
         failed_precondition("not executed: seq_id " + std::to_string(missing) + " of this run did not arrive within " +
                                 std::to_string(parts_.config.limits.gap_timeout_seconds) +
                                 " s (limits.gap_timeout_seconds), and this operation comes after it",
                             "seq_id_gap"));
  }
  for (const OperationPtr& operation : unserved) {
    const Error error = worker_starting(run->backend->name());
    fail(run, operation, error);
    if (operation->creates_run) remove_run(run, error);
  }
  pump(run);
  go_on_ending(run);
}

void TrainingController::shut_down() {
  for (const RunPtr& run : all_runs()) {
    std::vector<OperationPtr> left;
    {
      MutexLock lock(run->mutex);
      left = run->log.drain();
    }
    for (const OperationPtr& operation : left) fail(run, operation, unavailable("the server is shutting down"));
  }
}

Result<ModelInfo> TrainingController::get_info(const UserId& user, const RunId& run_id) const {
  TUFT_ASSIGN(const RunPtr run, find(user, run_id));
  const config::ModelConfig& model = run->backend->config();
  // "owner/name" is how Hugging Face calls a model, and a client anywhere can load that; any other name only means
  // something on this machine, where the model's directory holds the tokenizer.
  const size_t slash = model.model_name.find('/');
  const bool is_hub_name = slash != model.model_name.npos && slash != 0 && slash == model.model_name.rfind('/');
  return ModelInfo{run->id, model.model_name, run->backend->architecture(),
                   is_hub_name ? model.model_name : model.model_path.string(), run->lora.rank};
}

}  // namespace tuft::control
