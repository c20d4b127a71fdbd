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

// Returns whether nothing of the run would be lost that its worker could still save.
bool is_saved_locked(const Run& run, Nanos now) TUFT_REQUIRES(run.mutex) {
  return !run.weights_changed && (!run.gradient_pending || run.backend()->gives_up_gradients(now));
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

std::string_view RunPlacement::name_of(Reason reason) {
  switch (reason) {
    case Reason::kLost:
      return "lost";
    case Reason::kDrained:
      return "drained";
    case Reason::kBalanced:
      return "balanced";
  }
  return "unknown";
}

void RunPlacement::go_on(const RunPtr& run) {
  const Model& model = *run->place.model();
  if (model.workers().size() == 1) return;
  const bool worker_ends = run->backend()->draining();
  ModelBackendPtr to;
  {
    MutexLock lock(run->mutex);
    if (!worker_ends && run->leaves_until == 0) return;
    if (!is_saved_locked(*run, clock_.monotonic())) return;
    if (!worker_ends) to = model.workers()[run->leaves_to];
  }
  move(run, worker_ends ? Reason::kDrained : Reason::kBalanced, to);
}

void RunPlacement::move(const RunPtr& run, Reason reason, ModelBackendPtr to) {
  const ModelBackendPtr from = run->backend();
  if (to == nullptr) to = run->place.model()->for_training(clock_.monotonic(), from.get());
  if (to == nullptr || to == from || !to->serves()) return;
  // Not before another worker serves, because the run's own may come back with it. If it is back now, nothing happens.
  if (reason == Reason::kLost) resumption_.give_up(run);
  bool removes = false;
  {
    MutexLock lock(run->mutex);
    if (run->closed || run->ending || run->hopes || run->running != nullptr || run->backend() != from) return;
    // What its worker still does for it comes first, if that worker is there.
    const bool is_saved = is_saved_locked(*run, clock_.monotonic());
    const bool waits = run->restoring_incarnation > 0 || run->writes_behind || !is_saved;
    if (reason == Reason::kLost ? from->actor().up() : waits) return;
    removes = from->actor().up() && run->has_adapter_locked();
    run->place.move(*to);
    run->adapter_incarnation = 0;
    run->restoring_incarnation = 0;
    run->drain_not_before = 0;
    run->leaves_until = 0;
    run->unheld_since = 0;
    run->restore_not_before = 0;
    if (reason == Reason::kBalanced) run->stay_locked(clock_.monotonic());
  }
  metrics::training().run_moves.add(1, {{"base_model", to->name()}, {"reason", name_of(reason)}});
  telemetry::log_info(
      "model.moved", "the model goes on at another worker",
      KeyAttributes(keys_of(*run), {{"tuft.reason", name_of(reason)}, {"tuft.worker.name", to->label()}}));
  if (removes) remove_there(*run, *from);
  restorer_.on_moved(run);
}

bool RunPlacement::has_lasted(const void* of, bool is_true, Nanos limit, Nanos now) {
  MutexLock lock(mutex_);
  if (!is_true) {
    true_since_.erase(of);
    return false;
  }
  return now - true_since_.try_emplace(of, now).first->second >= limit;
}

void RunPlacement::sweep() {
  const Nanos now = clock_.monotonic();
  for (const ModelPtr& model : backends_.models()) {
    if (model->workers().size() == 1) continue;
    std::unordered_set<const ModelBackend*> gone;
    for (const ModelBackendPtr& worker : model->workers()) {
      const bool is_lost = has_lasted(worker.get(), !worker->actor().up(), kAway, now);
      if (is_lost || worker->draining()) gone.insert(worker.get());
    }
    if (!gone.empty()) move_runs_of_gone_workers(*model, gone);
    // One at a time, so that what a move costs is spread, and seen before the next one.
    if (!go_on_leaving(*model, now)) balance(*model, now);
  }
}

void RunPlacement::move_runs_of_gone_workers(const Model& model, const std::unordered_set<const ModelBackend*>& gone) {
  for (const RunPtr& run : runs_.all()) {
    const ModelBackendPtr& worker = run->backend();
    if (run->place.model().get() != &model || !gone.contains(worker.get())) continue;
    if (worker->draining()) {
      go_on(run);
    } else {
      move(run, Reason::kLost);
    }
  }
}

bool RunPlacement::go_on_leaving(const Model& model, Nanos now) {
  RunPtr run;
  {
    MutexLock lock(mutex_);
    const auto found = leaving_.find(&model);
    if (found == leaving_.end()) return false;
    run = found->second;
  }
  bool leaves = false;
  bool stays = false;
  {
    MutexLock lock(run->mutex);
    leaves = run->leaves_until > 0;
    stays = leaves && now > run->leaves_until;
    if (stays) run->stay_locked(now);
  }
  if (leaves && !stays) {
    drain_.go_on(run);
    go_on(run);
    return true;
  }
  {
    MutexLock lock(mutex_);
    leaving_.erase(&model);
  }
  if (stays) executor_.pump(run);
  return stays;
}

void RunPlacement::balance(const Model& model, Nanos now) {
  const ModelBackend* least = nullptr;
  const ModelBackend* most = nullptr;
  for (const ModelBackendPtr& worker : model.workers()) {
    if (!worker->serves()) continue;
    if (least == nullptr || worker->ranks() < least->ranks()) least = worker.get();
    if (most == nullptr || worker->ranks() > most->ranks()) most = worker.get();
  }
  const int64_t difference = least == nullptr ? 0 : most->ranks() - least->ranks();
  // A difference that new runs and ends of runs will level out is left alone.
  const bool differs = difference > 0 && difference * 4 >= most->ranks();
  if (!has_lasted(&model, differs, kSteady, now)) return;
  const RunPtr chosen = choose(runs_.all(), *most, difference);
  if (chosen == nullptr) return;
  {
    MutexLock lock(chosen->mutex);
    chosen->leaves_until = now + kLeaveTime;
    chosen->leaves_to = least->number();
  }
  {
    MutexLock lock(mutex_);
    leaving_[&model] = chosen;
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
  // One that could not be saved just now would only stand still.
  if (!is_there || clock_.monotonic() < std::max(run.leaves_not_before, run.drain_not_before)) return CanLeave::kNo;
  return run.gradient_pending || run.running != nullptr ? CanLeave::kAtEndOfStep : CanLeave::kNow;
}

}  // namespace tuft::control
