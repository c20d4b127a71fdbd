#include "actor/worker_gauges.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "base/mutex.h"
#include "metrics/workers.h"
#include "telemetry/instrument.h"

namespace tuft::actor {
namespace {

using Observe = telemetry::Observable::Observe;

struct Board {
  Mutex mutex;
  std::set<const WorkerGauges*> workers TUFT_GUARDED_BY(mutex);
};

Board& board() {
  static auto* const instance = new Board;
  return *instance;
}

template <typename Look>
void for_each_worker(Look&& look) {
  Board& all = board();
  MutexLock lock(all.mutex);
  for (const WorkerGauges* worker : all.workers) look(*worker);
}

void observe_states(const Observe& observe) {
  for_each_worker([&](const WorkerGauges& worker) {
    for (size_t i = 0; i < kWorkerStates; ++i) {
      const auto state = static_cast<WorkerState>(i);
      const int64_t serving = worker.state() == state ? 1 : 0;
      observe(static_cast<double>(state == WorkerState::kStandby ? worker.standbys() : serving),
              {{"base_model", worker.base_model()}, {"state", worker_state_name(state)}});
    }
  });
}

void observe_up(const Observe& observe) {
  for_each_worker([&](const WorkerGauges& worker) {
    observe(worker.state() == WorkerState::kReady ? 1 : 0, {{"base_model", worker.base_model()}});
  });
}

void observe_heartbeats(const Observe& observe) {
  const Nanos now = system_clock().monotonic();
  for_each_worker([&](const WorkerGauges& worker) {
    const Nanos last = worker.last_answer();
    if (last == 0) return;
    observe(to_seconds(std::max<Nanos>(0, now - last)), {{"base_model", worker.base_model()}});
  });
}

}  // namespace

WorkerGauges::WorkerGauges(std::string base_model, const WorkerRows& rows)
    : base_model_(std::move(base_model)), rows_(rows) {
  static std::once_flag once;
  std::call_once(once, [] {
    metrics::workers().count.set_callback(observe_states);
    metrics::workers().up.set_callback(observe_up);
    metrics::workers().heartbeat_age.set_callback(observe_heartbeats);
  });
  MutexLock lock(board().mutex);
  board().workers.insert(this);
}

WorkerGauges::~WorkerGauges() {
  MutexLock lock(board().mutex);
  board().workers.erase(this);
}

}  // namespace tuft::actor
