// Where the time of a training run goes between two optimizer steps.
//
// At any time a run is in one of three states: an operation of it executes, it has operations that all wait for their
// turn, or it has none. The time of an execution belongs to the kind of the operation, except what the operation waited
// inside of the worker.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace tuft::control {

// Since the step before, or since the run was created. The times add up to the time that has passed. What comes before
// a step that is not taken, for lack of a gradient, is counted nowhere.
struct StepSpan {
  Nanos passes = 0;   // forward and forward_backward
  Nanos step = 0;     // the optimizer's
  Nanos saves = 0;    // saving and loading checkpoints
  Nanos waiting = 0;  // for missing numbers, for the worker, and in its queues
  Nanos idle = 0;     // the run had no operation
  double loss_sum = 0, weight_sum = 0;
  int64_t tokens = 0;

  // The mean loss of the passes; NaN if there is none.
  double loss() const;
};

// Not thread-safe. The times given to it must not go back; one that does counts as the last.
class StepClock {
 public:
  enum class Work : uint8_t { kPass, kStep, kSave, kCreate, kOther };

  // An operation is there. It ends with ended() if it was started, else with dropped().
  void placed(Nanos now);
  void dropped(Nanos now);
  // Operations execute one at a time. `waited`: the part of the execution that it waited in the worker.
  void started(Nanos now);
  void ended(Work work, Nanos waited, Nanos now);

  // Notes what a forward_backward reported, before it ends. A loss without a weight counts as none.
  void add_pass(std::optional<double> loss_sum, double weight_sum, int64_t tokens);
  // The step that executes has been made, and its operation ends soon. Returns what has passed, and begins anew.
  StepSpan end_step(Nanos waited, Nanos now);

 private:
  void advance(Nanos now);
  void book(Work work, Nanos waited);

  StepSpan span_;
  Nanos last_ = 0;
  Nanos executing_ = 0;  // time of the operation that executes, not yet in `span_`
  int64_t there_ = 0;    // operations, with the one that executes
  bool executes_ = false;
  bool began_ = false;
};

}  // namespace tuft::control
