#include "control/training/run_executor.h"

#include <string>
#include <utility>

#include "control/training/training_telemetry.h"
#include "control/types/operation_keys.h"
#include "metrics/futures.h"

namespace tuft::control {
namespace {

StepClock::Work work_of(const RunOperation& operation) {
  if (operation.creates_run) return StepClock::Work::kCreate;
  switch (operation.type) {
    case OperationType::kForward:
    case OperationType::kForwardBackward:
      return StepClock::Work::kPass;
    case OperationType::kOptimStep:
      return StepClock::Work::kStep;
    case OperationType::kSaveWeights:
    case OperationType::kSaveWeightsForSampler:
    case OperationType::kSaveWeightsExternal:
    case OperationType::kLoadWeights:
      return StepClock::Work::kSave;
    default:
      return StepClock::Work::kOther;
  }
}

bool is_repeatable(const RunOperation& operation) {
  const StepClock::Work work = work_of(operation);
  const bool is_clients = !operation.moves_run && !operation.ends_run;
  return is_clients && !operation.resumes && !operation.was_put_back && work != StepClock::Work::kCreate &&
         work != StepClock::Work::kOther;
}

}  // namespace

void RunExecutor::set_handler(std::initializer_list<OperationType> types, OperationHandler& handler) {
  for (const OperationType type : types) handlers_[static_cast<size_t>(type)] = &handler;
}

void RunExecutor::enqueue(const RunPtr& run, const OperationPtr& operation) {
  using Insertion = OperationLog<RunOperation>::Insertion;
  operation->placed = clock_.monotonic();
  Insertion insertion = Insertion::kPassed;
  bool closed = false;
  int64_t next = 0;
  {
    MutexLock lock(run->mutex);
    closed = run->closed || (run->ending && !operation->ends_run);
    note_held_locked(*run, operation->placed);
    run->last_request = clock_.wall();
    if (!closed) open_numbers_locked(*run, *operation);
    if (!closed) insertion = run->log.insert(operation);
    if (!closed && insertion != Insertion::kPassed) {
      operation->is_timed = true;
      run->step_clock.placed(operation->placed);
      runs_.attend_locked(run);
    }
    next = run->log.next_seq_id();
  }
  if (closed) return fail(run, {operation}, runs_.unknown(run->user, run->id));
  if (insertion == Insertion::kPassed) {
    return fail(run, {operation},
                failed_precondition("seq_id " + std::to_string(operation->seq_id.value_or(0)) +
                                        " of this run was used or given up, and its result is not kept any more; the "
                                        "next seq_id is " +
                                        std::to_string(next),
                                    "seq_id_passed"));
  }
  if (insertion == Insertion::kBuffered) {
    metrics::futures().sequence_guard_out_of_order.add(1, {{"operation_type", operation_name(operation->type)}});
    return;
  }
  pump(run);
}

// A restart that undid operations made their numbers free. A client that goes back uses them again. A client that goes
// on has used them and sends a higher one, which is then the next: nobody will send the numbers in between.
void RunExecutor::open_numbers_locked(Run& run, const RunOperation& operation) {
  if (!run.numbers_lost || !operation.seq_id) return;
  run.numbers_lost = false;
  const int64_t next = run.log.next_seq_id();
  if (*operation.seq_id > next) {
    run.log.start_at(*operation.seq_id);
  } else if (*operation.seq_id == next && !run.gradient_lost) {
    // The client knows the state of the run, so it needs no notice.
    run.told_of_loss = true;
    run.notice.reset();
  }
}

bool RunExecutor::can_start_locked(const Run& run) const {
  const RunOperation* front = run.running == nullptr ? run.log.front() : nullptr;
  if (front == nullptr) return false;
  if (run.closed || run.broken) return true;
  const Nanos now = clock_.monotonic();
  // Its user may give up a run that cannot be restored for now, but not what waits before that: a short outage would
  // lose it. What was cancelled needs no adapter.
  const bool waits_for_restore = run.restoring_incarnation == 0 && now < run.restore_not_before;
  const bool unloads = front->type == OperationType::kUnloadModel;
  if (waits_for_restore && (unloads || futures_.has_ended(*front->future))) return true;
  if (run.saves_next_locked(now)) return false;
  // A run that leaves its worker goes on to the end of its step, because no checkpoint holds a gradient.
  const bool leaves = run.backend()->draining() || run.leaves_until > 0;
  const bool ends_step = run.gradient_pending && !run.backend()->gives_up_gradients(now);
  if (leaves && !ends_step) return false;
  return front->creates_run ? run.backend()->actor().ready() : run.backend()->holds(run.adapter_incarnation);
}

void RunExecutor::pump(const RunPtr& run) {
  int64_t cost = 0;
  ModelBackendPtr worker;
  bool saves = false;
  {
    MutexLock lock(run->mutex);
    if (!run->queued && can_start_locked(*run)) {
      run->queued = true;
      cost = run->log.front()->cost;
      worker = run->backend();
    } else if (run->running == nullptr && run->saves_next_locked(clock_.monotonic())) {
      saves = true;
    } else {
      return;
    }
  }
  if (saves) return idle_(run);
  worker->training_queue().submit(
      {.user = run->user, .cost = cost, .start = [this, owner = lifetime_.owner(), run, worker] {
         const auto alive = owner.lock();
         return alive != nullptr && start_turn(run, worker);
       }});
}

// Returns false if there is nothing to start now, or if the run has moved to another worker since it was queued.
bool RunExecutor::start_turn(const RunPtr& run, const ModelBackendPtr& worker) {
  OperationPtr operation;
  bool has_moved = false;
  {
    MutexLock lock(run->mutex);
    run->queued = false;
    has_moved = run->backend() != worker;
    if (!has_moved) {
      if (!can_start_locked(*run)) return false;
      operation = run->running = run->log.take();
      operation->slot_at = worker;
      run->step_clock.started(clock_.monotonic());
      operation->incarnation = operation->creates_run ? worker->actor().incarnation() : run->adapter_incarnation;
    }
  }
  if (has_moved) {
    pump(run);
    return false;
  }
  start(run, operation);
  return true;
}

OperationPtr RunExecutor::own_operation(Run& run, OperationType type, RunOperation::Payload payload) {
  OperationKeys keys = keys_of(run);
  keys.operation = type;
  auto admission = futures_.admit(run.user, std::move(keys), {}, {}, {.is_servers = true});
  if (!admission.ok()) return nullptr;
  auto operation = std::make_shared<RunOperation>();
  operation->future = std::move(admission->future);
  operation->type = type;
  operation->payload = std::move(payload);
  return operation;
}

bool RunExecutor::execute_first(const RunPtr& run, const OperationPtr& operation) {
  operation->placed = clock_.monotonic();
  {
    MutexLock lock(run->mutex);
    if (run->closed || run->running != nullptr) return false;
    run->running = operation;
    runs_.attend_locked(run);
    operation->is_timed = true;
    run->step_clock.placed(operation->placed);
    run->step_clock.started(operation->placed);
    operation->incarnation = run->adapter_incarnation;
  }
  start(run, operation);
  return true;
}

std::optional<Error> RunExecutor::refusal_of(Run& run, const RunOperation& operation) {
  if (operation.refusal) return operation.refusal;
  MutexLock lock(run.mutex);
  if (run.closed) return model_unloaded();
  if (operation.type == OperationType::kUnloadModel) return std::nullopt;
  const bool cures = operation.type == OperationType::kLoadWeights && run.backend()->holds(run.adapter_incarnation);
  if (run.broken && !cures) return run.broken;
  std::optional<Error> notice;
  // A load replaces what was rolled back, so it needs no warning.
  std::swap(notice, run.notice);
  if (operation.type == OperationType::kLoadWeights) return std::nullopt;
  return notice;
}

void RunExecutor::start(const RunPtr& run, const OperationPtr& operation) {
  const telemetry::ContextScope scope(operation->future->context);
  operation->started = clock_.monotonic();
  record_turn(*operation);
  if (!futures_.claim(*operation->future)) {
    // The client has no model, so the run no longer counts.
    if (operation->creates_run) {
      close(run, Error{ErrorCode::kCancelled, "this model was never created: its creation was cancelled", "cancelled"});
    }
    return conclude(run, operation, Error{ErrorCode::kCancelled, "cancelled before its turn", "cancelled"});
  }
  if (auto refusal = refusal_of(*run, *operation)) return conclude(run, operation, std::move(*refusal));
  const OperationType type = operation->creates_run ? OperationType::kCreateModel : operation->type;
  OperationHandler* handler = handlers_[static_cast<size_t>(type)];
  if (handler == nullptr)
    return conclude(run, operation, internal_error("a training run cannot execute this operation"));
  handler->start(run, operation);
}

// Returns whether the operation waits to be executed again, because its worker was lost, and the journal brings the run
// to where it was. It waits so once, because it may be what ended the worker.
bool RunExecutor::put_back(const RunPtr& run, const OperationPtr& operation, const Error& error) {
  if (!actor::is_worker_lost(error)) return false;
  ModelBackendPtr slot_at;
  {
    MutexLock lock(run->mutex);
    if (run->backend()->holds(operation->incarnation)) {
      // Only the connection broke, so nobody knows what the worker did. A checkpoint of it will tell.
      run->journal.give_up();
      return false;
    }
    const bool is_restored = run->journal.is_complete() && !run->closed && !run->ending;
    if (!is_restored || !is_repeatable(*operation)) return false;
    const Nanos now = clock_.monotonic();
    slot_at = std::exchange(operation->slot_at, nullptr);
    operation->placed = now;
    // The files of the first attempt are gone, so the worker must not answer with what it remembers of it.
    if (work_of(*operation) == StepClock::Work::kSave) operation->call_id = operation->future->request.str() + "#again";
    run->step_clock.ended(work_of(*operation), 0, now);
    run->step_clock.placed(now);
    operation->was_put_back = true;
    operation->was_given_up = false;
    run->log.put_back(operation);
    run->running = nullptr;
  }
  if (slot_at != nullptr) slot_at->training_queue().release(run->user, 1);
  pump(run);
  idle_(run);
  return true;
}

void RunExecutor::conclude(const RunPtr& run, const OperationPtr& operation, Result<FutureValue> result) {
  if (!result.ok() && put_back(run, operation, result.error())) return;
  std::vector<OperationPtr> dropped;
  {
    MutexLock lock(run->mutex);
    run->step_clock.ended(work_of(*operation), operation->waited, clock_.monotonic());
    if (operation->seq_id) run->last_seq_id = operation->seq_id;
    if (operation->was_answered) run->last_operation = call_id_of(*operation);
    if (result.ok() && !operation->moves_run) run->told_of_loss = false;
    // Of a failed operation of the server no client is told.
    const bool is_clients = !operation->moves_run;
    if (!result.ok() && actor::is_worker_lost(result.error()) && is_clients &&
        operation->incarnation == run->adapter_incarnation) {
      dropped = run->log.drain();
      run->told_of_loss = !run->journal.is_complete();
    }
    if (run->ending) run->ending->note(*operation, result);
    const bool failed_to_move = operation->moves_run && !result.ok() && !run->backend()->draining();
    const Nanos now = clock_.monotonic();
    const bool is_lost = failed_to_move && actor::is_worker_lost(result.error());  // which took no time of the run
    if (failed_to_move) run->note_failed_save_locked(is_lost ? now : operation->started, now);
  }
  if (!result.ok()) {
    operation->span.record_error(result.error());
    record_checkpoint_failure(*operation, result.error());
  }
  operation->span.end();
  // Done before the future ends, so that a client that sees it end finds the memory free.
  release_payload(*run, *operation);
  if (persistence_.enabled()) {
    const MutexLock order(run->record_mutex);
    futures_.complete(operation->future, std::move(result), changes_of(*run, persistence_, clock_.wall()));
  } else {
    futures_.complete(operation->future, std::move(result));
  }
  {
    // Done only now, so that the next operation's result is written after this one's.
    MutexLock lock(run->mutex);
    if (run->running == operation) run->running = nullptr;
  }
  if (!dropped.empty()) {
    fail(run, dropped,
         unavailable("not executed: the worker of base model " + run->backend()->name() +
                         " ended while it executed an earlier operation of this run",
                     "worker_died"));
  }
  if (operation->slot_at != nullptr) operation->slot_at->training_queue().release(run->user, 1);
  pump(run);
  idle_(run);
}

void RunExecutor::fail(const RunPtr& run, const std::vector<OperationPtr>& operations, const Error& error) {
  {
    MutexLock lock(run->mutex);
    for (const OperationPtr& operation : operations) {
      if (operation->is_timed) run->step_clock.dropped(clock_.monotonic());
    }
  }
  for (const OperationPtr& operation : operations) {
    release_payload(*run, *operation);
    operation->span.record_error(error);
    record_checkpoint_failure(*operation, error);
    operation->span.end();
    futures_.complete(operation->future, error);
  }
}

void RunExecutor::close(const RunPtr& run, const Error& why) {
  std::vector<OperationPtr> left;
  bool was_created = false;
  {
    MutexLock lock(run->mutex);
    if (run->closed) return;
    run->closed = true;
    run->hopes = false;
    was_created = run->created;
    left = run->log.drain();
  }
  runs_.remove(run);
  if (was_created) run->backend()->instruments().add_model(-1);
  fail(run, left, why);
}

void RunExecutor::sweep() {
  for (const RunPtr& run : runs_.take_attended()) {
    sweep_run(run);
    runs_.still_attend(run);
  }
}

// Returns since when the run's worker has not held its adapter; 0: it holds it, or it is restored there.
Nanos RunExecutor::note_held_locked(Run& run, Nanos now) {
  if (run.backend()->holds(run.adapter_incarnation) || run.restoring_incarnation > 0) {
    run.unheld_since = 0;
  } else if (run.unheld_since == 0) {
    run.unheld_since = now;
  }
  return run.unheld_since;
}

void RunExecutor::sweep_run(const RunPtr& run) {
  const Nanos now = clock_.monotonic();
  std::vector<OperationPtr> given_up;
  std::vector<OperationPtr> unserved;
  int64_t missing = 0;
  {
    MutexLock lock(run->mutex);
    const bool only_waits_for_worker = run->log.empty() && run->running == nullptr && !run->ending;
    if (only_waits_for_worker && !run->backend()->actor().ready()) return;
    if (run->log.has_gap()) {
      given_up = run->log.give_up_gap(now - limits_.gap_timeout_seconds * kSecond, &missing);
    }
    // What has waited for long for its turn has not waited for the worker.
    const bool is_late = note_held_locked(*run, now) != 0 && run->unheld_since <= now - kWorkerWait;
    while (is_late && run->running == nullptr && run->log.front() != nullptr &&
           run->log.front()->placed <= now - kWorkerWait) {
      if (run->log.front()->creates_run && run->backend()->actor().ready()) break;
      unserved.push_back(run->log.take());
    }
  }
  if (!given_up.empty()) {
    fail(run, given_up,
         failed_precondition("not executed: seq_id " + std::to_string(missing) + " of this run did not arrive within " +
                                 std::to_string(limits_.gap_timeout_seconds) +
                                 " s (limits.gap_timeout_seconds), and this operation comes after it",
                             "seq_id_gap"));
  }
  for (const OperationPtr& operation : unserved) {
    const Error error = worker_starting(run->backend()->name());
    fail(run, {operation}, error);
    if (operation->creates_run) close(run, error);
  }
  pump(run);
  idle_(run);
}

void RunExecutor::shut_down() {
  for (const RunPtr& run : runs_.all()) {
    std::vector<OperationPtr> left;
    {
      MutexLock lock(run->mutex);
      left = run->log.drain();
    }
    fail(run, left, unavailable("the server is shutting down"));
  }
}

}  // namespace tuft::control
