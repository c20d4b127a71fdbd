#include "actor/worker_gauges.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
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

// What the workers of a base model are together.
struct Sums {
  std::array<int64_t, kWorkerStates> in_state{};
  std::optional<Nanos> oldest_of_up, newest;  // signs of life
};

bool is_up(WorkerState state) {
  return state == WorkerState::kReady || state == WorkerState::kSilent || state == WorkerState::kDraining;
}

std::map<std::string, Sums> sums() {
  std::map<std::string, Sums> by_model;
  Board& all = board();
  MutexLock lock(all.mutex);
  for (const WorkerGauges* worker : all.workers) {
    Sums& sum = by_model[worker->base_model()];
    const WorkerState state = worker->state();
    ++sum.in_state[static_cast<size_t>(state)];
    sum.in_state[static_cast<size_t>(WorkerState::kStandby)] = worker->standbys();
    const Nanos sign = worker->last_sign();
    if (sign == 0) continue;
    sum.newest = std::max(sum.newest.value_or(0), sign);
    if (is_up(state)) sum.oldest_of_up = std::min(sum.oldest_of_up.value_or(sign), sign);
  }
  return by_model;
}

void observe_states(const Observe& observe) {
  for (const auto& [model, sum] : sums()) {
    for (size_t i = 0; i < kWorkerStates; ++i) {
      observe(static_cast<double>(sum.in_state[i]),
              {{"base_model", model}, {"state", worker_state_name(static_cast<WorkerState>(i))}});
    }
  }
}

void observe_up(const Observe& observe) {
  for (const auto& [model, sum] : sums()) {
    const int64_t answering = sum.in_state[static_cast<size_t>(WorkerState::kReady)] +
                              sum.in_state[static_cast<size_t>(WorkerState::kDraining)];
    observe(answering > 0 ? 1 : 0, {{"base_model", model}});
  }
}

// That of the worker that has been silent for longest, of those that are up; if none is, of the one heard last.
void observe_heartbeats(const Observe& observe) {
  const Nanos now = system_clock().monotonic();
  for (const auto& [model, sum] : sums()) {
    if (!sum.newest) continue;
    const Nanos last = sum.oldest_of_up.value_or(*sum.newest);
    observe(to_seconds(std::max<Nanos>(0, now - last)), {{"base_model", model}});
  }
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

void WorkerGauges::gave_sign(Nanos at) {
  Nanos known = last_sign_;
  while (known < at && !last_sign_.compare_exchange_weak(known, at)) {
  }
}

}  // namespace tuft::actor
