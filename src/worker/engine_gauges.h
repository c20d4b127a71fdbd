// What the engine loop is asked for when metrics are collected: requests, age of the newest step, share of busy time,
// KV cache, adapters, and the arithmetic of passes and steps. The engine thread publishes after each turn; the
// callbacks read a copy on a telemetry thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/engine.h"
#include "telemetry/instrument.h"
#include "worker/adapter_pager.h"
#include "worker/traced_engine.h"

namespace tuft::worker {

// Thread-safe. One a process: it takes the callbacks of its instruments, and gives them back when it is destroyed.
class EngineGauges {
 public:
  struct State {
    size_t running = 0;  // requests that have started, training and sampling
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

  // `memory_bytes` stands in where the KV cache has no limit of its own; 0: no limit is reported. `accepted` gives the
  // requests that are accepted and not answered. `clock` and what `accepted` uses outlive this.
  EngineGauges(std::string base_model, int64_t memory_bytes, const Clock& clock, std::function<size_t()> accepted);
  ~EngineGauges();
  EngineGauges(const EngineGauges&) = delete;
  EngineGauges& operator=(const EngineGauges&) = delete;

  void publish(const State& state) TUFT_EXCLUDES(mutex_);
  // The engine thread has nothing to do until work_arrived(); so it begins.
  void work_ended(Nanos at) TUFT_EXCLUDES(mutex_);
  void work_arrived(Nanos at) TUFT_EXCLUDES(mutex_);
  // A step or a pass ended.
  void progressed(Nanos at) TUFT_EXCLUDES(mutex_);

 private:
  using Observe = telemetry::Observable::Observe;

  // Arithmetic done over what the device could have done meanwhile, between two collections. Two readers that come one
  // right after the other get the same.
  class Utilization {
   public:
    // Sums since the start. Nothing where no time was spent, or no peak is known.
    std::optional<double> take(double flops, Nanos spent, double peak, Nanos now);

   private:
    Nanos begin_ = 0;
    double flops_ = 0;
    Nanos spent_ = 0;
    std::optional<double> newest_;
  };

  State state() const TUFT_EXCLUDES(mutex_);
  void observe_requests_and_steps();
  void observe_kv_cache();
  void observe_adapters();
  void observe_work();
  void observe_requests(const Observe& observe) const;
  double step_age() const TUFT_EXCLUDES(mutex_);
  double busy() TUFT_EXCLUDES(mutex_);
  std::optional<double> training_utilization() TUFT_EXCLUDES(mutex_);
  std::optional<double> sampling_utilization() TUFT_EXCLUDES(mutex_);
  int64_t kv_limit(const engine::KvUsage& kv) const { return kv.limit > 0 ? kv.limit : memory_bytes_; }

  const std::string base_model_;
  const int64_t memory_bytes_;
  const Clock& clock_;
  const std::function<size_t()> accepted_;

  mutable Mutex mutex_;
  State state_ TUFT_GUARDED_BY(mutex_);
  bool idle_ TUFT_GUARDED_BY(mutex_) = true;
  Nanos idle_since_ TUFT_GUARDED_BY(mutex_) = 0;  // while idle_
  Nanos idle_sum_ TUFT_GUARDED_BY(mutex_) = 0;    // of what is over
  Nanos progress_ TUFT_GUARDED_BY(mutex_) = 0;    // newest step, or when work arrived
  // Of the window that busy() reports.
  Nanos window_begin_ TUFT_GUARDED_BY(mutex_) = 0;
  Nanos window_idle_ TUFT_GUARDED_BY(mutex_) = 0;
  double window_busy_ TUFT_GUARDED_BY(mutex_) = 0;
  Utilization training_ TUFT_GUARDED_BY(mutex_);
  Utilization sampling_ TUFT_GUARDED_BY(mutex_);
};

}  // namespace tuft::worker
