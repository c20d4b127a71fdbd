// Evaluates the custom losses of a pass, datum by datum, on the threads of the engine.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "engine/train/pass_planner.h"
#include "engine/train/scheduler.h"

namespace tuft::engine {

// Returns the losses of all datums of the pass that have a custom loss, in the order of the pass. They do not depend on
// the threads. To be called on the engine thread; without a `runner` it computes them.
std::vector<Result<loss_graph::Outcome>> evaluate_custom_losses(const PassPlan& plan, std::span<const float> logprobs,
                                                                const TaskRunner& runner);

}  // namespace tuft::engine
