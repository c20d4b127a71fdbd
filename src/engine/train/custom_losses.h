// CustomLosses: evaluates the custom losses of a pass, datum by datum, on the threads of the engine. Confined to the
// engine thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/train/pass_planner.h"
#include "engine/train/scheduler.h"

namespace tuft::engine {

class CustomLosses {
 public:
  explicit CustomLosses(TaskRunner runner) : runner_(std::move(runner)) {}

  // Computes the losses of all datums of the pass that have a custom loss. The results do not depend on the threads.
  void evaluate(const PassPlan& plan, std::span<const float> logprobs);
  // Returns the results of evaluate(), in the order of the pass.
  Result<loss_graph::Outcome> take_next() { return std::move(outcomes_[next_++]); }

 private:
  const TaskRunner runner_;
  std::vector<Result<loss_graph::Outcome>> outcomes_;
  size_t next_ = 0;
};

}  // namespace tuft::engine
