// EngineGauges: the metrics of the engine loop that are read when metrics are collected: requests, age of the newest
// step, share of busy time, KV cache, adapters, and the arithmetic of passes and steps. The engine thread updates the
// state after each turn; the callbacks read a copy on a telemetry thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/engine.h"
#include "engine/sample/sampler.h"
#include "telemetry/instrument.h"
#include "worker/adapter_pager.h"
#include "worker/work_count.h"

namespace tuft::worker {

// Thread-safe. At most one per process: it sets the callbacks of its instruments, and clears them when it is destroyed.
class EngineGauges {
 public:
  struct State {
    size_t running = 0;  // requests that have started, training and sampling
    engine::Sampler::Phases samples = {};
    AdapterPager::Counts pager = {};
    engine::KvUsage kv = {};
    engine::AdapterMemory adapters = {};
    size_t waiting_for_adapter = 0;
    double deficit_max = 0;  // as in TrainScheduler
    PassTotals passes = {};
    StepTotals steps = {};
    engine::DeviceTimes device = {};
    double peak_flops = 0;  // 0: not known
  };

  // `memory_bytes` is reported as limit where the KV cache has none; 0: no limit is reported. `accepted` returns the
  // number of requests that are accepted and not answered. `clock` and all that `accepted` uses outlive this.
  EngineGauges(std::string base_model, int64_t memory_bytes, const Clock& clock, std::function<size_t()> accepted);
  ~EngineGauges();
  EngineGauges(const EngineGauges&) = delete;
  EngineGauges& operator=(const EngineGauges&) = delete;

  void update(const State& state) TUFT_EXCLUDES(mutex_);
  // Says that the engine thread has nothing to do until work_arrived(). This is the state at the start.
  void work_ended(Nanos at) TUFT_EXCLUDES(mutex_);
  void work_arrived(Nanos at) TUFT_EXCLUDES(mutex_);
  // Says that a step or a pass ended.
  void progressed(Nanos at) TUFT_EXCLUDES(mutex_);

 private:
  using Observe = telemetry::Observable::Observe;

  // The arithmetic done, divided by what the device could have done in the same time, between two collections. Readers
  // that come right after each other get the same value.
  class Utilization {
   public:
    // Takes sums since the start. Returns nullopt where no time was spent or no peak is known.
    std::optional<double> take(double flops, Nanos spent, double peak, Nanos now);

   private:
    Nanos begin_ = 0;
    double flops_ = 0;
    Nanos spent_ = 0;
    std::optional<double> newest_;
  };

  State state() const TUFT_EXCLUDES(mutex_);
  template <typename Read>
  void add(const telemetry::Observable& instrument, Read read);
  template <typename Read>
  void add(const telemetry::Observable& instrument, std::string_view label, Read read);
  void observe_requests_and_steps();
  void observe_kv_cache();
  void observe_adapters();
  void observe_work();
  double step_age() const TUFT_EXCLUDES(mutex_);
  double busy() TUFT_EXCLUDES(mutex_);
  std::optional<double> training_utilization() TUFT_EXCLUDES(mutex_);
  std::optional<double> sampling_utilization() TUFT_EXCLUDES(mutex_);
  int64_t kv_limit(const engine::KvUsage& kv) const { return kv.limit > 0 ? kv.limit : memory_bytes_; }

  const std::string base_model_;
  const int64_t memory_bytes_;
  const Clock& clock_;
  const std::function<size_t()> accepted_;
  std::vector<const telemetry::Observable*> observed_;  // whose callbacks are set

  mutable Mutex mutex_;
  State state_ TUFT_GUARDED_BY(mutex_);
  bool idle_ TUFT_GUARDED_BY(mutex_) = true;
  Nanos idle_since_ TUFT_GUARDED_BY(mutex_) = 0;  // while idle_
  Nanos idle_sum_ TUFT_GUARDED_BY(mutex_) = 0;    // of idle periods that are over
  Nanos progress_ TUFT_GUARDED_BY(mutex_) = 0;    // newest step, or when work arrived
  // The window that busy() reports.
  Nanos window_begin_ TUFT_GUARDED_BY(mutex_) = 0;
  Nanos window_idle_ TUFT_GUARDED_BY(mutex_) = 0;
  double window_busy_ TUFT_GUARDED_BY(mutex_) = 0;
  Utilization training_ TUFT_GUARDED_BY(mutex_);
  Utilization sampling_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::worker
