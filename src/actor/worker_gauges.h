// The gauges of supervised workers, observed when metrics are collected: tuft.workers, tuft.worker.up and
// tuft.worker.heartbeat.age.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/clock.h"

namespace tuft::actor {

enum class WorkerState : uint8_t { kStarting, kReady, kSilent, kDead };

// The state of one worker. Its series exist as long as this object. Thread-safe.
class WorkerGauges {
 public:
  explicit WorkerGauges(std::string base_model);
  ~WorkerGauges();
  WorkerGauges(const WorkerGauges&) = delete;
  WorkerGauges& operator=(const WorkerGauges&) = delete;

  void set_state(WorkerState state) { state_ = state; }
  void answered(Nanos at) { answered_ = at; }

  const std::string& base_model() const { return base_model_; }
  WorkerState state() const { return state_; }
  Nanos last_answer() const { return answered_; }  // 0: no answer yet

 private:
  const std::string base_model_;
  std::atomic<WorkerState> state_{WorkerState::kStarting};
  std::atomic<Nanos> answered_{0};
};

}  // namespace tuft::actor
