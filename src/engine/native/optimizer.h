// AdamW steps of many adapters as one pass over all their parameters.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/native/adapter.h"
#include "engine/native/thread_pool.h"

namespace tuft::engine::native {

struct StepOfAdapter {
  Adapter* adapter = nullptr;  // no two have the same
  AdamParams params;
};

// One answer for each. Norm, clipping, moments and failure are an adapter's own: what it gets is the same bits whoever
// steps with it. A gradient that is not finite is dropped and its step left out; an adapter without memory for its
// moments keeps its gradient.
std::vector<Result<OptimReport>> step_together(std::span<const StepOfAdapter> steps, ThreadPool& pool);

}  // namespace tuft::engine::native
