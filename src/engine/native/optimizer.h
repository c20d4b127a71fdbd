// Optimizer steps of several adapters in one pass over all their parameters, each adapter with its own optimizer.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "engine/back_end/adapters.h"
#include "engine/back_end/thread_pool.h"
#include "engine/native/adapter.h"

namespace tuft::engine::native {

// Returns one report per step, as TrainingEngine::optim_steps(). If the moments of an adapter cannot be allocated, it
// gets kResourceExhausted and keeps its gradient.
std::vector<Result<OptimReport>> step_together(std::span<const StepOfAdapter<Adapter>> steps, ThreadPool& pool);

}  // namespace tuft::engine::native
