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
  const bool gave_up_gradient = run.drained_incarnation != 0 && run.drained_incarnation == run.adapter_incarnation;
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
  const ModelBackendPtr to = run->place.model()->for_training(clock_.monotonic(), from.get());
  if (to == nullptr || !to->serves()) return false;
  bool removes = false;
  {
    MutexLock lock(run->mutex);
    if (run->closed || run->ending || run->running != nullptr || run->backend() != from) return false;
    // What its worker still does for it comes first, if that worker is there.
    const bool waits = run->restoring_incarnation > 0 || run->writes_behind || !is_saved_locked(*run);
    if (waits && reason != "lost") return false;
    removes = run->created && from->holds(run->adapter_incarnation);
    run->place.move(*to);
    run->adapter_incarnation = 0;
    run->restoring_incarnation = 0;
    run->drained_incarnation = 0;
    run->drain_not_before = 0;
    run->leaves_until = 0;
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
    if (!any_leaves) balance(*model, runs);
  }
}

bool RunPlacement::go_on_leaving(const RunPtr& run, Nanos now) {
  bool stays = false;
  {
    MutexLock lock(run->mutex);
    if (run->leaves_until == 0) return false;
    stays = now > run->leaves_until;
    if (stays) run->leaves_until = 0;
  }
  if (stays) {
    executor_.pump(run);
  } else {
    drain_.go_on(run);
    go_on(run);
  }
  return true;
}

void RunPlacement::balance(const Model& model, const std::vector<RunPtr>& runs) {
  const auto [least, most] =
      std::minmax_element(model.workers().begin(), model.workers().end(),
                          [](const auto& left, const auto& right) { return left->ranks() < right->ranks(); });
  if (!(*least)->serves() || !(*most)->serves()) return;
  const int64_t difference = (*most)->ranks() - (*least)->ranks();
  // A difference that new runs and ends of runs will level out is left alone.
  if (difference * 4 < (*most)->ranks()) return;
  for (const RunPtr& run : runs) {
    if (run->backend() != *most || int64_t{2} * run->lora.rank > difference) continue;
    {
      MutexLock lock(run->mutex);
      const bool is_movable = run->created && !run->closed && !run->ending && !run->broken &&
                              (*most)->holds(run->adapter_incarnation);
      if (!is_movable) continue;
      run->leaves_until = clock_.monotonic() + kLeaveTime;
    }
    drain_.go_on(run);
    return go_on(run);
  }
}

}  // namespace tuft::control
