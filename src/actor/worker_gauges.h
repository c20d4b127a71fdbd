// The gauges of supervised workers, observed when metrics are collected: tuft.workers, tuft.worker.up and
// tuft.worker.heartbeat.age.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "actor/worker_rows.h"
#include "base/clock.h"

namespace tuft::actor {

// The state of one worker that serves a base model. The series of a base model are sums over those of it, and exist as
// long as one of them. `rows`, of all workers of the base model, must outlive it. Thread-safe.
class WorkerGauges {
 public:
  WorkerGauges(std::string base_model, const WorkerRows& rows);
  ~WorkerGauges();
  WorkerGauges(const WorkerGauges&) = delete;
  WorkerGauges& operator=(const WorkerGauges&) = delete;

  void set_state(WorkerState state) { state_ = state; }
  // Has no effect if a later sign of life is known.
  void gave_sign(Nanos at);

  const std::string& base_model() const { return base_model_; }
  WorkerState state() const { return state_; }
  int64_t standbys() const { return rows_.count(WorkerState::kStandby); }
  Nanos last_sign() const { return last_sign_; }  // of life; 0: none yet

 private:
  const std::string base_model_;
  const WorkerRows& rows_;
  std::atomic<WorkerState> state_{WorkerState::kStarting};
  std::atomic<Nanos> last_sign_{0};
};

}  // namespace tuft::actor
