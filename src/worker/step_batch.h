// Steps of the optimizer of several runs, taken together as one pass over their parameters.
//
// A step of one run lies in that run's trace. What several share is a trace of its own, engine.optim_pass: it carries
// counts only and links to the runs' spans, which link back.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "telemetry/trace.h"
#include "worker/operation.h"
#include "worker/traced_engine.h"

namespace tuft::worker {

// A run that steps. Engine thread.
class StepMember {
 public:
  virtual ~StepMember() = default;
  virtual const std::string& step_lane() const = 0;
  virtual telemetry::Span& step_span() = 0;
  // `computing` is its share of the common time, by parameters.
  virtual void stepped(Result<engine::OptimReport> report, Nanos computing) = 0;
};

// Confined to the engine thread.
class StepBatch {
 public:
  // All of them outlive this.
  StepBatch(TracedEngine& engine, const Clock& clock, const OperationMetrics& metrics)
      : engine_(engine), clock_(clock), metrics_(metrics) {}

  // The member lives until it was stepped, or all is given up.
  void add(engine::AdapterStep step, StepMember& member);
  bool empty() const { return steps_.empty(); }
  // Steps all of them, and gives the lanes that can go on.
  std::vector<std::string> run();

 private:
  void record(Nanos begin, Nanos end);

  TracedEngine& engine_;
  const Clock& clock_;
  const OperationMetrics& metrics_;
  std::vector<engine::AdapterStep> steps_;
  std::vector<StepMember*> members_;  // of each
};

}  // namespace tuft::worker
