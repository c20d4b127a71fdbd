#include "control/training/run_restorer.h"

#include <string>
#include <utility>
#include <vector>

#include "control/types/operation_keys.h"
#include "metrics/store.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

constexpr Nanos kRoomPause = 5 * kSecond;

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

}  // namespace

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
    if (run->backend() == backend) create_adapter(run, backend, incarnation, round);
  }
}

void RunRestorer::on_moved(const RunPtr& run) {
  const ModelBackendPtr& worker = run->backend();
  create_adapter(run, worker, worker->actor().incarnation(), std::make_shared<RestoreRound>(worker->name()));
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
  if (missed) create_adapter(run, worker, incarnation, std::make_shared<RestoreRound>(worker->name()));
}

// A run whose adapter was never created needs no restore: its create_model waits in the log and starts now.
void RunRestorer::create_adapter(const RunPtr& run, const ModelBackendPtr& worker, uint64_t incarnation,
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
  const WorkerCalls::Call call = WorkerCalls::begin_call("training_backend.create_adapter", *run, incarnation);
  call.span->set_attribute("tuft.restored", true);
  worker->actor().create_adapter(
      create_adapter_request(*run), call.options,
      calls_.answer_to<worker::v1::CreateAdapterResponse>(call, [this, run, incarnation, round](const auto& result) {
        if (!result.ok()) return give_up(run, incarnation, result.error());
        load_weights(run, incarnation, round);
      }));
}

void RunRestorer::load_weights(const RunPtr& run, uint64_t incarnation, const RestoreRoundPtr& round) {
  std::optional<RestorePoint> point;
  {
    MutexLock lock(run->mutex);
    point = run->restore_point;
  }
  if (!point) return repeat(run, incarnation, round);
  if (point->checkpoint == nullptr) {
    return refuse(run, incarnation, point->unreadable.path, "it was skipped when the server started");
  }
  const WorkerCalls::Call call = WorkerCalls::begin_call("training_backend.load_state", *run, incarnation);
  call.span->set_attributes({{"tuft.optimizer", point->with_optimizer}, {"tuft.restored", true}});
  run->backend()->actor().load_state(
      load_state_request(*run, *point->checkpoint, point->with_optimizer), call.options,
      calls_.answer_to<worker::v1::LoadStateResponse>(
          call, [this, run, incarnation, round, checkpoint = point->checkpoint](const auto& result) {
            if (result.ok()) return repeat(run, incarnation, round);
            // A worker that has ended again becomes ready in another incarnation, and the restore is tried again.
            if (result.error().code == ErrorCode::kUnavailable) return give_up(run, incarnation, result.error());
            refuse(run, incarnation, checkpoint->path.str(), result.error().message);
          }));
}

// Makes what the journal has again.
void RunRestorer::repeat(const RunPtr& run, uint64_t incarnation, const RestoreRoundPtr& round) {
  bool can_repeat = false;
  {
    MutexLock lock(run->mutex);
    if (run->restoring_incarnation != incarnation) return;
    can_repeat = run->journal.is_complete() && run->journal.try_again();
  }
  if (!can_repeat) return finish(run, incarnation, *round);
  replay_.start(run, incarnation, [this, run, incarnation, round](const Status& repeated) {
    if (repeated.ok()) return finish(run, incarnation, *round);
    if (repeated.error().code == ErrorCode::kUnavailable) return give_up(run, incarnation, repeated.error());
    begin_again(run, incarnation, repeated.error());
  });
}

// A part of the journal was made again and the rest cannot be now: removes the adapter, and sweep() restores the run,
// with its journal if only memory is short.
void RunRestorer::begin_again(const RunPtr& run, uint64_t incarnation, const Error& error) {
  {
    MutexLock lock(run->mutex);
    if (run->restoring_incarnation != incarnation) return;
    if (error.code == ErrorCode::kResourceExhausted) {
      run->restore_not_before = clock_.monotonic() + kRoomPause;
    } else {
      run->journal.give_up();
    }
  }
  const WorkerCalls::Call call = WorkerCalls::begin_call("training_backend.remove_adapter", *run, incarnation);
  run->backend()->actor().remove_adapter(
      remove_adapter_request(*run), call.options,
      calls_.answer_to<worker::v1::RemoveAdapterResponse>(call, [run, incarnation](const auto&) {
        MutexLock lock(run->mutex);
        if (run->restoring_incarnation == incarnation) run->restoring_incarnation = 0;
      }));
}

void RunRestorer::finish(const RunPtr& run, uint64_t incarnation, RestoreRound& round) {
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
  round.note_restored(loss.has_value());
  telemetry::log_info(
      "model.restored", from_store ? "model restored after the server was restarted" : "model restored in a worker",
      KeyAttributes(keys_of(*run), {{"tuft.rolled_back", loss.has_value()}, {"tuft.checkpoint", checkpoint}}));
  if (loss) executor_.fail(run, dropped, *loss);
  executor_.pump(run);
}

// The adapter is in the worker, in its first state, so that a load can still bring the run back.
void RunRestorer::refuse(const RunPtr& run, uint64_t incarnation, const std::string& checkpoint,
                         const std::string& why) {
  bool from_store = false;
  {
    MutexLock lock(run->mutex);
    if (run->restoring_incarnation != incarnation) return;
    run->adapter_incarnation = incarnation;
    run->restoring_incarnation = 0;
    run->broken = data_loss("not executed: this model stopped at a restart, because its checkpoint " + checkpoint +
                                " could not be read; load another checkpoint into it, or unload it (the server's log "
                                "says what is wrong with the checkpoint)",
                            "model_lost");
    from_store = std::exchange(run->from_store, false);
  }
  if (from_store) metrics::store().restore_runs.add(1, {{"result", "corrupted"}});
  telemetry::log_error("model.corrupted", "checkpoint " + checkpoint + " cannot be read: " + why,
                       KeyAttributes(keys_of(*run)));
  executor_.pump(run);
}

void RunRestorer::give_up(const RunPtr& run, uint64_t incarnation, const Error& error) {
  bool from_store = false;
  {
    MutexLock lock(run->mutex);
    if (run->restoring_incarnation != incarnation) return;
    run->restoring_incarnation = 0;
    // The worker has ended again: its next start tries again.
    if (error.code == ErrorCode::kUnavailable) return;
    // Adapters that wait for their pages give room by themselves; what limits the pages stays as it is.
    const bool may_have_room = error.reason == "adapter_memory_bytes" || run->place.model()->workers().size() > 1;
    if (error.code == ErrorCode::kResourceExhausted && may_have_room) {
      run->restore_not_before = clock_.monotonic() + kRoomPause;
      return;
    }
    from_store = std::exchange(run->from_store, false);
    run->broken =
        data_loss("this model could not be restored after its worker was restarted: " + error.message, "model_lost");
  }
  if (from_store) metrics::store().restore_runs.add(1, {{"result", "corrupted"}});
  telemetry::log_error("model.corrupted", error.message, KeyAttributes(keys_of(*run)));
  executor_.pump(run);
}

}  // namespace tuft::control
