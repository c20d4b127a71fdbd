#include "control/training/worker_drain.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "metrics/workers.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

constexpr Nanos kSaveRetryPause = kSecond;
constexpr Nanos kLimitMax = 3600 * kSecond;
constexpr Nanos kSaveTime = 2 * kSecond;         // left for the saves of runs that have a gradient
constexpr Nanos kMargin = 500 * kMillisecond;    // before the worker ends by itself
constexpr int64_t kSavedTtlSeconds = 24 * 3600;  // it stays for longer while the run would be restored from it

// Returns whether the worker that ends holds the run.
bool is_held_locked(const Run& run) TUFT_REQUIRES(run.mutex) {
  return !run.closed && !run.broken && run.has_adapter_locked();
}

}  // namespace

void WorkerDrain::begin(const ModelBackendPtr& backend, uint64_t incarnation, Nanos limit) {
  const Nanos now = clock_.monotonic();
  limit = std::min(limit, kLimitMax);
  backend->drain(incarnation, now + std::min(limit / 4 * 3, std::max(limit / 2, limit - kSaveTime)));
  {
    MutexLock lock(mutex_);
    std::erase_if(drains_, [&](const Drain& drain) { return drain.backend == backend; });
    drains_.push_back({backend, incarnation, now, now + std::max(limit / 2, limit - kMargin)});
  }
  for (const RunPtr& run : runs_.all()) {
    {
      MutexLock lock(run->mutex);
      if (run->backend() == backend) run->drain_not_before = 0;
    }
    go_on(run);
  }
}

bool WorkerDrain::may_save_locked(const Run& run) const {
  return !run.gradient_pending || run.backend()->gives_up_gradients(clock_.monotonic());
}

bool WorkerDrain::needs_save(Run& run) const {
  MutexLock lock(run.mutex);
  const Nanos now = clock_.monotonic();
  const bool leaves = run.leaves_until > 0 || run.backend()->draining();
  if (!leaves && !run.saves_next_locked(now)) return false;
  if (!is_held_locked(run) || run.running != nullptr || !run.weights_changed) return false;
  if (!may_save_locked(run) || now < run.drain_not_before) return false;
  run.drain_not_before = now + kSaveRetryPause;
  return true;
}

// The server's saves of a run replace each other, but not what its client has saved under such a name, or has kept.
std::string WorkerDrain::name_of_servers_save(Run& run) const {
  MutexLock lock(run.mutex);
  const CheckpointPath path{run.id, CheckpointKind::kTraining, run.moved_name};
  const CheckpointPtr there = run.moved_name.empty() ? nullptr : checkpoints_.find(path.str());
  const bool is_clients = there != nullptr && !there->servers_save;
  if (run.moved_name.empty() || is_clients) run.moved_name = name_of_save("moved", clock_.wall());
  return run.moved_name;
}

void WorkerDrain::go_on(const RunPtr& run) {
  if (!needs_save(*run)) return;
  SaveWeights save{run->id, std::nullopt, name_of_servers_save(*run), kSavedTtlSeconds, true};
  const OperationPtr operation = executor_.own_operation(*run, OperationType::kSaveWeights, std::move(save));
  if (operation == nullptr) return;
  operation->moves_run = true;
  if (!executor_.execute_first(run, operation)) {
    executor_.fail(run, {operation}, Error{ErrorCode::kCancelled, "the model is at work or gone", "cancelled"});
  }
}

// A gradient alone cannot be saved, so nothing is left to do for it once it is not waited for.
bool WorkerDrain::is_empty(const ModelBackend& backend) const {
  // The worker's connection broke, and which runs go on there is not decided yet.
  if (!backend.is_cleared(backend.actor().incarnation())) return false;
  if (backend.sampling_queue().load().in_flight > 0) return false;
  const auto runs = runs_.all();
  return std::none_of(runs.begin(), runs.end(), [&](const RunPtr& run) {
    if (run->backend().get() != &backend) return false;
    MutexLock lock(run->mutex);
    if (!is_held_locked(*run)) return false;
    return run->running != nullptr || run->writes_behind || run->weights_changed || !may_save_locked(*run);
  });
}

void WorkerDrain::sweep() {
  std::vector<Drain> drains;
  {
    MutexLock lock(mutex_);
    std::erase_if(drains_, [](const Drain& drain) { return !drain.backend->draining(); });
    drains = drains_;
  }
  if (drains.empty()) return;
  for (const RunPtr& run : runs_.all()) go_on(run);
  for (const Drain& drain : drains) {
    const bool empty = is_empty(*drain.backend);
    if (!empty && clock_.monotonic() < drain.until) continue;
    {
      MutexLock lock(mutex_);
      std::erase_if(drains_, [&](const Drain& each) { return each.backend == drain.backend; });
    }
    let_go(drain, empty);
  }
}

void WorkerDrain::let_go(const Drain& drain, bool is_empty) {
  const double seconds = to_seconds(clock_.monotonic() - drain.began);
  metrics::workers().drain_duration.record(
      seconds, {{"base_model", drain.backend->name()}, {"result", is_empty ? "emptied" : "timed_out"}});
  const telemetry::Attribute keys[] = {{"tuft.base_model", drain.backend->name()},
                                       {"tuft.worker.generation", drain.incarnation},
                                       {"tuft.seconds", seconds}};
  if (is_empty) {
    telemetry::log_info("worker.drained", "all that the worker held is saved; it can end", telemetry::Attributes(keys));
  } else {
    telemetry::log_warning("worker.drain_timed_out",
                           "the worker's time is over before all that it held was saved; give it more with "
                           "--drain-seconds",
                           telemetry::Attributes(keys));
  }
  drain.backend->actor().let_go(drain.incarnation);
}

}  // namespace tuft::control
