#include "actor/worker_gauges.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <set>
#include <string_view>
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
  constexpr std::array<std::pair<WorkerState, std::string_view>, 4> kNames = {{{WorkerState::kStarting, "starting"},
                                                                               {WorkerState::kReady, "ready"},
                                                                               {WorkerState::kSilent, "silent"},
                                                                               {WorkerState::kDead, "dead"}}};
  for_each_worker([&](const WorkerGauges& worker) {
    for (const auto& [state, name] : kNames) {
      observe(worker.state() == state ? 1 : 0, {{"base_model", worker.base_model()}, {"state", name}});
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

WorkerGauges::WorkerGauges(std::string base_model) : base_model_(std::move(base_model)) {
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
