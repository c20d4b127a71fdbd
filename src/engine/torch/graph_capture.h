// GraphCapture: work for the device that is captured once and then replayed with one launch instead of one per
// operation. Internal. Functions may throw libtorch's exceptions.
#pragma once

#include <functional>
#include <memory>

#include "engine/torch/device.h"

namespace tuft::engine::torch {

class GraphCapture {
 public:
  virtual ~GraphCapture() = default;
  // Captures `work`. To be called once. `work` may allocate and launch, but must not wait or read results back, and its
  // inputs must keep their addresses. It must have run before, so that libraries are initialised. May defer the
  // execution to replay().
  virtual void capture(std::function<void()> work) = 0;
  // The results are valid until the next replay() of this capture or of a sibling.
  virtual void replay() = 0;
};

// Returns null if captures are not available. Intermediate results share their memory with those of `sibling`, which
// may be null.
std::unique_ptr<GraphCapture> make_graph_capture(const Placement& placement, const GraphCapture* sibling);
// Returns why captures are not available; empty: they are available.
const char* no_graph_capture(const Placement& placement);

#ifdef TUFT_CUDA_GRAPHS
std::unique_ptr<GraphCapture> make_cuda_graph(const Placement& placement, const GraphCapture* sibling);
#endif

}  // namespace tuft::engine::torch
