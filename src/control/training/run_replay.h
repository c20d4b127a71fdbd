// Makes the passes and steps of a run's journal again (run_journal.h), at a worker that has the run's adapter at its
// restore point.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/result.h"
#include "control/training/run.h"
#include "control/training/worker_calls.h"

namespace tuft::control {

// Thread-safe.
class RunReplay {
 public:
  RunReplay(const Clock& clock, const WorkerCalls& calls) : clock_(clock), calls_(calls) {}

  // Makes the entries again in the life `incarnation` of the run's worker, one after the other. The run must not
  // execute an operation meanwhile. `done` runs on the actor's thread or during this call: with the error of the first
  // call that failed, or with success.
  void start(const RunPtr& run, uint64_t incarnation, std::function<void(Status)> done) const;

 private:
  struct Progress;
  void go_on(const std::shared_ptr<Progress>& progress) const;
  template <typename Response>
  actor::Callback<Response> next(const WorkerCalls::Call& call, const std::shared_ptr<Progress>& progress) const;
  void end(const Progress& progress, Status status) const;
  void record(const Run& run, const Progress& progress, const Status& status) const;

  const Clock& clock_;
  const WorkerCalls& calls_;
};

}  // namespace tuft::control
