#include "control/training/worker_drain.h"

#include <algorithm>
#include <string>
#include <utility>

#include "control/types/operation_keys.h"
#include "metrics/workers.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

constexpr Nanos kRetryPause = kSecond;
constexpr Nanos kLimitMax = 3600 * kSecond;
constexpr Nanos kSaveTime = 2 * kSecond;         // left for the saves of runs that have a gradient
constexpr Nanos kMargin = 500 * kMillisecond;    // before the worker ends by itself
constexpr int64_t kSavedTtlSeconds = 24 * 3600;  // until then the run has another restore point, or is gone

bool holds_locked(const Run& run, uint64_t incarnation) TUFT_REQUIRES(run.mutex) {
  return run.created && !run.closed && !run.broken && run.adapter_incarnation == incarnation;
}

}  // namespace

void WorkerDrain::begin(const std::shared_ptr<ModelBackend>& backend, uint64_t incarnation, Nanos limit) {
  const Nanos now = clock_.monotonic();
  limit = std::min(limit, kLimitMax);
  const Nanos gradients_until = now + std::min(limit / 4 * 3, std::max(limit / 2, limit - kSaveTime));
  backend->drain(incarnation, gradients_until);
  {
    MutexLock lock(mutex_);
    std::erase_if(drains_, [&](const Drain& drain) { return drain.backend == backend; });
    drains_.push_back({backend, incarnation, now, gradients_until, now + std::max(limit / 2, limit - kMargin)});
  }
  for (const RunPtr& run : runs_.all()) go_on(run);
}

std::vector<WorkerDrain::Drain> WorkerDrain::drains() const {
  MutexLock lock(mutex_);
  return drains_;
}

void WorkerDrain::go_on(const RunPtr& run) {
  if (!run->backend->draining()) return;
  for (const Drain& drain : drains()) {
    if (drain.backend == run->backend && needs_save(*run, drain)) save(run);
  }
}

bool WorkerDrain::needs_save(Run& run, const Drain& drain) const {
  MutexLock lock(run.mutex);
  if (!holds_locked(run, drain.incarnation) || run.running != nullptr || !run.weights_changed) return false;
  const Nanos now = clock_.monotonic();
  if ((run.gradient_pending && now < drain.gradients_until) || now < run.drain_not_before) return false;
  run.drained_incarnation = drain.incarnation;
  run.drain_not_before = now + kRetryPause;
  return true;
}

// A gradient alone cannot be saved.
bool WorkerDrain::is_saved_locked(const Run& run, const Drain& drain) const {
  return !run.weights_changed && (!run.gradient_pending || clock_.monotonic() >= drain.gradients_until);
}

// The save is an operation like that of a client, with its record and its trace. If the store is away, none is made,
// and go_on() tries again.
void WorkerDrain::save(const RunPtr& run) {
  OperationKeys keys = keys_of(*run);
  keys.operation = OperationType::kSaveWeights;
  auto admission = futures_.admit(run->user, std::move(keys), {}, {}, {.is_servers = true});
  if (!admission.ok()) return;
  auto operation = std::make_shared<RunOperation>();
  operation->future = std::move(admission->future);
  operation->type = OperationType::kSaveWeights;
  operation->moves_run = true;
  operation->payload = SaveWeights{run->id, std::nullopt, name_of_save("moved", clock_.wall()), kSavedTtlSeconds, true};
  if (!executor_.execute_first(run, operation)) {
    executor_.fail(run, {operation}, Error{ErrorCode::kCancelled, "the model is at work or gone", "cancelled"});
  }
}

bool WorkerDrain::is_empty(const Drain& drain) const {
  if (drain.backend->sampling_queue().load().in_flight > 0) return false;
  const auto runs = runs_.all();
  return std::none_of(runs.begin(), runs.end(), [&](const RunPtr& run) {
    if (run->backend != drain.backend) return false;
    MutexLock lock(run->mutex);
    if (!holds_locked(*run, drain.incarnation)) return false;
    return run->running != nullptr || run->writes_behind || !is_saved_locked(*run, drain);
  });
}

void WorkerDrain::sweep() {
  for (const Drain& drain : drains()) {
    const bool is_over = drain.backend->actor().incarnation() != drain.incarnation;
    if (!is_over) {
      for (const RunPtr& run : runs_.all()) {
        if (run->backend == drain.backend) go_on(run);
      }
    }
    const bool empty = !is_over && is_empty(drain);
    if (!is_over && !empty && clock_.monotonic() < drain.until) continue;
    {
      MutexLock lock(mutex_);
      std::erase_if(drains_, [&](const Drain& each) { return each.backend == drain.backend; });
    }
    if (!is_over) let_go(drain, empty);
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
