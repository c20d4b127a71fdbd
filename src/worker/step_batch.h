// StepBatch: optimizer steps of several runs, made together in one pass over their parameters.
//
// The step of a single run lies in the trace of that run. A shared step is a trace of its own, engine.optim_pass: it
// carries counts only, and links to the spans of the runs, which link back.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/training_engine.h"
#include "telemetry/trace.h"
#include "worker/operation.h"

namespace tuft::worker {

// A run in the batch. Called on the engine thread.
class StepMember {
 public:
  virtual ~StepMember() = default;
  virtual const std::string& step_queue() const = 0;
  virtual telemetry::Span& step_span() = 0;
  // `computing` is the share of the run in the common time, by number of parameters.
  virtual void stepped(Result<engine::OptimReport> report, Nanos computing) = 0;
};

// Confined to the engine thread.
class StepBatch {
 public:
  // All arguments outlive this.
  StepBatch(engine::TrainingEngine& engine, const Clock& clock, const OperationMetrics& metrics)
      : engine_(engine), clock_(clock), metrics_(metrics) {}

  // The member lives until stepped() is called, or until this is destroyed. Throws std::bad_alloc, without an effect,
  // if there is no memory for it.
  void add(engine::AdapterStep step, StepMember& member);
  bool empty() const { return steps_.empty(); }
  // Makes all steps and returns the queues that can go on. Steps for which there is no memory fail.
  std::vector<std::string> run();

 private:
  void record(Nanos begin, Nanos end);

  engine::TrainingEngine& engine_;
  const Clock& clock_;
  const OperationMetrics& metrics_;
  std::vector<engine::AdapterStep> steps_;
  std::vector<StepMember*> members_;  // of each
  std::vector<std::string> queues_;   // of each
};

}  // namespace tuft::worker
