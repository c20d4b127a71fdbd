#include "engine/torch/graph_capture.h"

#include <utility>

namespace tuft::engine::torch {
namespace {

// A CPU has nothing to capture: replay() runs the work again, so that the code around captures can be tested on any
// machine.
class EagerFallback final : public GraphCapture {
 public:
  void capture(std::function<void()> work) override { work_ = std::move(work); }
  void replay() override { work_(); }

 private:
  std::function<void()> work_;
};

}  // namespace

std::unique_ptr<GraphCapture> make_graph_capture(const Placement& placement,
                                                 [[maybe_unused]] const GraphCapture* sibling) {
  if (!placement.is_cuda()) return std::make_unique<EagerFallback>();
#ifdef TUFT_CUDA_GRAPHS
  return make_cuda_graph(placement, sibling);
#else
  return nullptr;
#endif
}

const char* no_graph_capture([[maybe_unused]] const Placement& placement) {
#ifndef TUFT_CUDA_GRAPHS
  if (placement.is_cuda()) return "this build did not find CUDA's headers";
#endif
  return "";
}

}  // namespace tuft::engine::torch
