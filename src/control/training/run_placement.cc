#include "control/training/run_placement.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "control/training/worker_calls.h"
#include "control/types/operation_keys.h"
#include "metrics/training.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

bool has_several_workers(const Run& run) {
  return run.place.model()->workers().size() > 1;
}

// Returns whether nothing of the run would be lost that its worker could still save.
bool is_saved_locked(const Run& run) TUFT_REQUIRES(run.mutex) {
  const bool gave_up_gradient = run.backend()->draining() && run.drained_incarnation == run.adapter_incarnation;
  return !run.weights_changed && (!run.gradient_pending || gave_up_gradient);
}

// Frees the memory of the adapter that the run leaves behind.
void remove_there(const Run& run, ModelBackend& worker) {
  const WorkerCalls::Call call =
      WorkerCalls::begin_call("training_backend.remove_adapter", run, worker.actor().incarnation());
  worker.actor().remove_adapter(remove_adapter_request(run), call.options,
                                [span = call.span](const Result<worker::v1::RemoveAdapterResponse>& result) {
                                  if (!result.ok()) span->record_error(result.error());
                                  span->end();
                                });
}

}  // namespace

void RunPlacement::go_on(const RunPtr& run) {
  if (!has_several_workers(*run)) return;
  const bool worker_ends = run->backend()->draining();
  {
    MutexLock lock(run->mutex);
    if (!worker_ends && run->leaves_until == 0) return;
    if (!is_saved_locked(*run)) return;
  }
  move(run, worker_ends ? "drained" : "balanced");
}

bool RunPlacement::move(const RunPtr& run, std::string_view reason) {
  const ModelBackendPtr from = run->backend();
  ModelBackendPtr to = run->place.model()->for_training(clock_.monotonic(), from.get());
  if (reason == "balanced") {
    MutexLock lock(run->mutex);
    to = run->place.model()->workers()[run->leaves_to];
  }
  if (to == nullptr || to == from || !to->serves()) return false;
  bool removes = false;
  {
    MutexLock lock(run->mutex);
    if (run->closed || run->ending || run->running != nullptr || run->backend() != from) return false;
    // What its worker still does for it comes first, if that worker is there.
    const bool waits = run->restoring_incarnation > 0 || run->writes_behind || !is_saved_locked(*run);
    if (reason == "lost" ? from->actor().up() : waits) return false;
    removes = run->created && from->actor().up() && from->actor().incarnation() == run->adapter_incarnation;
    run->place.move(*to);
    run->adapter_incarnation = 0;
    run->restoring_incarnation = 0;
    run->drained_incarnation = 0;
    run->drain_not_before = 0;
    run->leaves_until = 0;
    run->unheld_since = 0;
    run->restore_not_before = 0;
    if (reason == "balanced") run->stay_locked(clock_.monotonic());
  }
  metrics::training().run_moves.add(1, {{"base_model", to->name()}, {"reason", reason}});
  telemetry::log_info("model.moved", "the model goes on at another worker",
                      KeyAttributes(keys_of(*run), {{"tuft.reason", reason}, {"tuft.worker.name", to->label()}}));
  if (removes) remove_there(*run, *from);
  restorer_.on_moved(run);
  return true;
}

bool RunPlacement::is_lost(const ModelBackend& worker, Nanos now) {
  MutexLock lock(mutex_);
  if (worker.actor().up()) {
    away_since_.erase(&worker);
    return false;
  }
  return now - away_since_.try_emplace(&worker, now).first->second >= kAway;
}

void RunPlacement::sweep() {
  const Nanos now = clock_.monotonic();
  std::vector<RunPtr> runs;
  for (const ModelPtr& model : backends_.models()) {
    if (model->workers().size() == 1) continue;
    if (runs.empty()) runs = runs_.all();
    std::unordered_set<const ModelBackend*> lost;
    for (const ModelBackendPtr& worker : model->workers()) {
      if (is_lost(*worker, now)) lost.insert(worker.get());
    }
    bool any_leaves = false;
    for (const RunPtr& run : runs) {
      if (run->place.model() != model) continue;
      const ModelBackendPtr& worker = run->backend();
      if (lost.contains(worker.get())) {
        move(run, "lost");
      } else if (worker->draining()) {
        go_on(run);
      } else {
        any_leaves = go_on_leaving(run, now) || any_leaves;
      }
    }
    // One at a time, so that what a move costs is spread, and seen before the next one.
    if (!any_leaves) balance(*model, runs, now);
  }
}

bool RunPlacement::go_on_leaving(const RunPtr& run, Nanos now) {
  bool stays = false;
  {
    MutexLock lock(run->mutex);
    if (run->leaves_until == 0) return false;
    stays = now > run->leaves_until;
    if (stays) run->stay_locked(now);
  }
  if (stays) {
    executor_.pump(run);
  } else {
    drain_.go_on(run);
    go_on(run);
  }
  return true;
}

bool RunPlacement::is_steady(const Model& model, bool differs, Nanos now) {
  MutexLock lock(mutex_);
  if (!differs) differs_since_.erase(&model);
  return differs && now - differs_since_.try_emplace(&model, now).first->second >= kSteady;
}

void RunPlacement::balance(const Model& model, const Runs& runs, Nanos now) {
  const ModelBackend* least = nullptr;
  const ModelBackend* most = nullptr;
  for (const ModelBackendPtr& worker : model.workers()) {
    if (!worker->serves()) continue;
    if (least == nullptr || worker->ranks() < least->ranks()) least = worker.get();
    if (most == nullptr || worker->ranks() > most->ranks()) most = worker.get();
  }
  const int64_t difference = least == nullptr ? 0 : most->ranks() - least->ranks();
  // A difference that new runs and ends of runs will level out is left alone.
  if (!is_steady(model, difference > 0 && difference * 4 >= most->ranks(), now)) return;
  const RunPtr chosen = choose(runs, *most, difference);
  if (chosen == nullptr) return;
  {
    MutexLock lock(chosen->mutex);
    chosen->leaves_until = now + kLeaveTime;
    chosen->leaves_to = least->number();
  }
  drain_.go_on(chosen);
  go_on(chosen);
}

// A run that need not end a step first; then one of the user who has most there, because that user makes the
// difference.
RunPtr RunPlacement::choose(const Runs& runs, const ModelBackend& worker, int64_t difference) const {
  std::unordered_map<UserId, int64_t> ranks;
  for (const RunPtr& run : runs) {
    if (run->backend().get() == &worker) ranks[run->user] += run->lora.rank;
  }
  RunPtr chosen;
  std::pair<CanLeave, int64_t> best = {CanLeave::kNo, 0};
  for (const RunPtr& run : runs) {
    const CanLeave can = can_leave(*run, worker, difference);
    if (can == CanLeave::kNo) continue;
    const std::pair<CanLeave, int64_t> rating = {can, ranks[run->user]};
    if (chosen != nullptr && rating <= best) continue;
    chosen = run;
    best = rating;
  }
  return chosen;
}

RunPlacement::CanLeave RunPlacement::can_leave(const Run& run, const ModelBackend& worker, int64_t difference) const {
  if (run.backend().get() != &worker || int64_t{2} * run.lora.rank > difference) return CanLeave::kNo;
  MutexLock lock(run.mutex);
  const bool is_there =
      run.created && !run.closed && !run.ending && !run.broken && worker.holds(run.adapter_incarnation);
  if (!is_there || clock_.monotonic() < run.leaves_not_before) return CanLeave::kNo;
  return run.gradient_pending || run.running != nullptr ? CanLeave::kAtEndOfStep : CanLeave::kNow;
}

}  // namespace tuft::control
