#include "control/training/run_restorer.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/types/operation_keys.h"
#include "metrics/store.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

constexpr Nanos kRestorePause = 5 * kSecond;

bool needs_adapter_locked(const Run& run, uint64_t incarnation) TUFT_REQUIRES(run.mutex) {
  return run.created && !run.closed && !run.ending && !run.hopes && run.running == nullptr &&
         run.adapter_incarnation < incarnation && run.restoring_incarnation < incarnation;
}

// Undoes what was trained since the restore point. Returns the error that the client gets if it was not told before.
std::optional<Error> roll_back_locked(Run& run) TUFT_REQUIRES(run.mutex) {
  std::string to = "its first state: it had no checkpoint";
  if (run.restore_point) {
    to = "checkpoint " + run.restore_point->checkpoint->path.str();
    if (run.restore_point->seq_id) to += " (seq_id " + std::to_string(*run.restore_point->seq_id) + ")";
    const bool lacks_gradient = std::exchange(run.restore_point->lacks_gradient, false);
    if (lacks_gradient) to += ", without the gradient that was pending when it was saved";
  }
  const bool lost = run.weights_changed || run.gradient_pending;
  const bool tell = lost && !run.told_of_loss;
  run.weights_changed = false;
  run.gradient_pending = false;
  run.told_of_loss = false;
  if (!tell) return std::nullopt;
  const std::string worker = "the worker of base model " + run.backend()->name();
  const std::string what = run.from_store                             ? "the server was restarted"
                           : run.place.model()->workers().size() == 1 ? worker + " was restarted"
                                                                      : worker + " was lost";
  return data_loss("not executed: " + what + " and this model went back to " + to +
                       "; what was trained since then must be trained again, or load another checkpoint",
                   "weights_rolled_back");
}

// Returns whether a restore that failed so can succeed later. An adapter that is there was left by an attempt whose
// answer was lost. What limits the pages stays as it is.
bool may_succeed_later(const Run& run, const Error& error) {
  if (error.reason == "adapter_page_bytes") return run.place.model()->workers().size() > 1;
  return is_retryable(error.code) || error.code == ErrorCode::kAlreadyExists;
}

}  // namespace

// The restore of a run that has its slot at the worker, until the last pointer to this goes.
struct RunRestorer::Restore {
  Restore(RunPtr restored, ModelBackendPtr at, uint64_t life, RestoreRoundPtr with)
      : run(std::move(restored)), worker(std::move(at)), incarnation(life), round(std::move(with)) {}
  ~Restore() { worker->restore_queue().release(run->user, 1); }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

  const RunPtr run;
  const ModelBackendPtr worker;
  const uint64_t incarnation;
  const RestoreRoundPtr round;
};

RestoreRound::~RestoreRound() {
  if (restored_ == 0) return;
  const telemetry::Attribute counts[] = {{"tuft.base_model", base_model_},
                                         {"tuft.runs", restored_.load()},
                                         {"tuft.runs_rolled_back", rolled_back_.load()}};
  if (rolled_back_ == 0) {
    telemetry::log_info("models.restored", "models were restored, and nothing was lost", telemetry::Attributes(counts));
    return;
  }
  telemetry::log_warning("models.restored",
                         "models were restored; those that are rolled back lost what was trained after their "
                         "checkpoints, and their clients are told",
                         telemetry::Attributes(counts));
}

void RunRestorer::restore_run(const RestoredRun& restored) {
  const RunRecord& record = restored.record;
  // The plan has settled the futures from which this record was decided, so the next restart must find the decision.
  if (!restored.hopes()) persistence_.write(record.user, {persistence_.put(record)}, {});
  const Result<ModelPtr> model = backends_.find(record.base_model);
  if (!model.ok()) {
    if (persistence_.is_view()) return;  // the server that leads has said so
    metrics::store().restore_runs.add(1, {{"result", "corrupted"}});
    telemetry::log_error("model.corrupted", "a model cannot be restored: " + model.error().message,
                         {{"tuft.training_run_id", record.id.str()}});
    return;
  }
  const RunPtr run = run_of(restored, *model, (*model)->for_training(clock_.monotonic()));
  if (!runs_.restore(run)) return;
  {
    MutexLock lock(run->mutex);
    runs_.attend_locked(run);
  }
  if (!persistence_.is_view()) run->backend()->instruments().add_model(1);
  expiry_.end_without_session(run);
}

void RunRestorer::on_worker_ready(const ModelBackendPtr& backend, uint64_t incarnation) {
  const auto round = std::make_shared<RestoreRound>(backend->name());
  for (const RunPtr& run : runs_.all()) {
    if (run->backend() == backend) queue(run, backend, incarnation, round);
  }
}

void RunRestorer::on_moved(const RunPtr& run) {
  const ModelBackendPtr& worker = run->backend();
  queue(run, worker, worker->actor().incarnation(), std::make_shared<RestoreRound>(worker->name()));
}

void RunRestorer::go_on(const RunPtr& run) {
  const ModelBackendPtr worker = run->backend();
  const uint64_t incarnation = worker->actor().incarnation();
  bool missed = false;
  {
    MutexLock lock(run->mutex);
    missed = needs_adapter_locked(*run, incarnation) && !run->broken && worker->actor().ready() &&
             clock_.monotonic() >= run->restore_not_before;
  }
  if (missed) queue(run, worker, incarnation, std::make_shared<RestoreRound>(worker->name()));
}

// A run whose adapter was never created needs no restore: its create_model waits in the log and starts now.
void RunRestorer::queue(const RunPtr& run, const ModelBackendPtr& worker, uint64_t incarnation,
                        const RestoreRoundPtr& round) {
  bool needed = false;
  {
    MutexLock lock(run->mutex);
    if (run->backend() != worker) return;  // it has moved meanwhile
    needed = needs_adapter_locked(*run, incarnation);
    if (needed && !worker->is_cleared(incarnation)) return;  // on_worker_ready() follows
    if (needed) {
      run->restoring_incarnation = incarnation;
      runs_.attend_locked(run);
      run->broken.reset();
    }
  }
  if (!needed) return executor_.pump(run);
  // Weak, because the run leads to the queue.
  auto begins = [this, owner = lifetime_.owner(), weak = std::weak_ptr<Run>(run), incarnation, round] {
    const auto alive = owner.lock();
    const RunPtr queued = weak.lock();
    return alive != nullptr && queued != nullptr && start(queued, incarnation, round);
  };
  // Of the cost of a turn, so that users take turns after each.
  worker->restore_queue().submit({.user = run->user, .cost = DispatchQueue::kQuantum, .start = std::move(begins)});
}

// Returns false if the run has moved since it was queued, or is restored in another life of its worker.
bool RunRestorer::start(const RunPtr& run, uint64_t incarnation, const RestoreRoundPtr& round) {
  ModelBackendPtr worker;
  {
    MutexLock lock(run->mutex);
    if (run->restoring_incarnation != incarnation) return false;
    worker = run->backend();
  }
  create_adapter(std::make_shared<const Restore>(run, std::move(worker), incarnation, round));
  return true;
}

void RunRestorer::create_adapter(const RestorePtr& restore) {
  const Run& run = *restore->run;
  const WorkerCalls::Call call = WorkerCalls::begin_call("training_backend.create_adapter", run, restore->incarnation);
  call.span->set_attribute("tuft.restored", true);
  restore->worker->actor().create_adapter(
      create_adapter_request(run), call.options,
      calls_.answer_to<worker::v1::CreateAdapterResponse>(call, [this, restore](const auto& result) {
        if (result.ok()) return load_weights(restore);
        const bool later = may_succeed_later(*restore->run, result.error());
        if (!later) return give_up(*restore, result.error());
        if (result.error().code == ErrorCode::kResourceExhausted) return wait_for_room(*restore);
        begin_again(restore, result.error());
      }));
}

void RunRestorer::load_weights(const RestorePtr& restore) {
  Run& run = *restore->run;
  std::optional<RestorePoint> point;
  {
    MutexLock lock(run.mutex);
    point = run.restore_point;
  }
  if (!point) return repeat(restore);
  if (point->checkpoint == nullptr) {
    return refuse(*restore, point->missing.path, "it was deleted or replaced, or was skipped when the server started");
  }
  const WorkerCalls::Call call = WorkerCalls::begin_call("training_backend.load_state", run, restore->incarnation);
  call.span->set_attributes({{"tuft.optimizer", point->with_optimizer}, {"tuft.restored", true}});
  auto loaded = [this, restore, checkpoint = point->checkpoint](const auto& result) {
    if (result.ok()) return repeat(restore);
    if (may_succeed_later(*restore->run, result.error())) return begin_again(restore, result.error());
    refuse(*restore, checkpoint->path.str(), result.error().message);
  };
  restore->worker->actor().load_state(load_state_request(run, *point->checkpoint, point->with_optimizer), call.options,
                                      calls_.answer_to<worker::v1::LoadStateResponse>(call, std::move(loaded)));
}

// Makes what the journal has again.
void RunRestorer::repeat(const RestorePtr& restore) {
  const RunPtr& run = restore->run;
  bool can_repeat = false;
  {
    MutexLock lock(run->mutex);
    if (run->restoring_incarnation != restore->incarnation) return;
    can_repeat = run->journal.is_complete() && run->journal.try_again();
  }
  if (!can_repeat) return finish(*restore);
  replay_.start(run, restore->incarnation, [this, restore](const Status& repeated) {
    repeated.ok() ? finish(*restore) : begin_again(restore, repeated.error());
  });
}

// The worker has not taken it.
void RunRestorer::wait_for_room(const Restore& restore) {
  Run& run = *restore.run;
  MutexLock lock(run.mutex);
  if (run.restoring_incarnation != restore.incarnation) return;
  run.restoring_incarnation = 0;
  run.restore_not_before = clock_.monotonic() + kRestorePause;
}

// What is in the worker now is not the run, or nobody knows what is there. Removes it, and sweep() restores the run
// again: with its journal, if that was not what failed. If the worker is lost, the removal only fails, and its next
// life restores the run at once.
void RunRestorer::begin_again(const RestorePtr& restore, const Error& error) {
  Run& run = *restore->run;
  {
    MutexLock lock(run.mutex);
    if (run.restoring_incarnation != restore->incarnation) return;
    if (!may_succeed_later(run, error)) {
      run.journal.give_up();
    } else if (!actor::is_worker_lost(error)) {
      run.restore_not_before = clock_.monotonic() + kRestorePause;
    }
  }
  const WorkerCalls::Call call = WorkerCalls::begin_call("training_backend.remove_adapter", run, restore->incarnation);
  restore->worker->actor().remove_adapter(
      remove_adapter_request(run), call.options,
      calls_.answer_to<worker::v1::RemoveAdapterResponse>(call, [restore](const auto&) {
        MutexLock lock(restore->run->mutex);
        if (restore->run->restoring_incarnation == restore->incarnation) restore->run->restoring_incarnation = 0;
      }));
}

void RunRestorer::finish(const Restore& restore) {
  const RunPtr& run = restore.run;
  const uint64_t incarnation = restore.incarnation;
  std::vector<OperationPtr> dropped;
  std::optional<Error> loss;
  std::string checkpoint;
  bool from_store = false;
  {
    MutexLock lock(run->mutex);
    if (run->restoring_incarnation != incarnation) return;
    if (run->journal.is_complete()) {
      run->journal.done();
      run->told_of_loss = false;
    } else {
      loss = roll_back_locked(*run);
      run->journal.begin();
    }
    if (loss) {
      dropped = run->log.drain();
      if (dropped.empty()) run->notice = loss;
    }
    if (run->restore_point) checkpoint = run->restore_point->checkpoint->path.str();
    run->adapter_incarnation = incarnation;
    run->restoring_incarnation = 0;
    run->leaves_until = 0;
    from_store = std::exchange(run->from_store, false);
  }
  if (from_store) metrics::store().restore_runs.add(1, {{"result", "ok"}});
  restore.round->note_restored(loss.has_value());
  telemetry::log_info(
      "model.restored", from_store ? "model restored after the server was restarted" : "model restored in a worker",
      KeyAttributes(keys_of(*run), {{"tuft.rolled_back", loss.has_value()}, {"tuft.checkpoint", checkpoint}}));
  if (loss) executor_.fail(run, dropped, *loss);
  executor_.pump(run);
}

// The adapter is in the worker, in its first state, so that a load can still bring the run back.
void RunRestorer::refuse(const Restore& restore, const std::string& checkpoint, const std::string& why) {
  const RunPtr& run = restore.run;
  bool from_store = false;
  {
    MutexLock lock(run->mutex);
    if (run->restoring_incarnation != restore.incarnation) return;
    run->adapter_incarnation = restore.incarnation;
    run->restoring_incarnation = 0;
    run->broken = data_loss("not executed: this model stopped at a restart, because its checkpoint " + checkpoint +
                                " is gone or could not be read; load another checkpoint into it, or unload it (the "
                                "server's log says what is wrong with the checkpoint)",
                            "model_lost");
    from_store = std::exchange(run->from_store, false);
  }
  if (from_store) metrics::store().restore_runs.add(1, {{"result", "corrupted"}});
  telemetry::log_error("model.corrupted", "checkpoint " + checkpoint + " is gone or cannot be read: " + why,
                       KeyAttributes(keys_of(*run)));
  executor_.pump(run);
}

// The worker does not take the adapter.
void RunRestorer::give_up(const Restore& restore, const Error& error) {
  const RunPtr& run = restore.run;
  bool from_store = false;
  {
    MutexLock lock(run->mutex);
    if (run->restoring_incarnation != restore.incarnation) return;
    run->restoring_incarnation = 0;
    from_store = std::exchange(run->from_store, false);
    run->broken =
        data_loss("this model could not be restored after its worker was restarted: " + error.message, "model_lost");
  }
  if (from_store) metrics::store().restore_runs.add(1, {{"result", "corrupted"}});
  telemetry::log_error("model.corrupted", error.message, KeyAttributes(keys_of(*run)));
  executor_.pump(run);
}

}  // namespace tuft::control
