// The only file that includes CUDA's headers. It is compiled if they are found.
#include <dlfcn.h>
#include <stdexcept>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "engine/torch/graph_capture.h"

namespace tuft::engine::torch {
namespace {

class CudaGraph final : public GraphCapture {
 public:
  CudaGraph(const Placement& placement, const CudaGraph* sibling)
      : stream_(sibling != nullptr ? sibling->stream_ : c10::cuda::getStreamFromPool(false, placement.device.index())),
        pool_(sibling != nullptr ? sibling->pool_ : at::cuda::graph_pool_handle()) {}

  void capture(std::function<void()> work) override {
    // The default stream cannot be captured. Wait for the work launched on it. CUDAStream::synchronize() is inline and
    // would need the library of CUDA's runtime at the link.
    c10::cuda::getCurrentCUDAStream(stream_.device_index()).unwrap().synchronize();
    const c10::StreamGuard stream(stream_);
    // Other threads may use the device freely.
    graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      end_quietly();
      throw;
    }
    graph_.capture_end();
  }

  void replay() override { graph_.replay(); }

 private:
  void end_quietly() {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
      // The exception of `work` is more informative.
    }
  }

  // Shared by all siblings, because libraries keep a workspace per stream.
  c10::cuda::CUDAStream stream_;
  at::cuda::MempoolId_t pool_;
  at::cuda::CUDAGraph graph_;
};

// The layout of at::cuda::CUDAGraph depends on whether its headers were compiled for CUDA 12.4 or later.
bool fits_libtorch() {
  constexpr int kLayout = 12040;
  using Function = int (*)(int* version);
  const auto function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion"));
  int version = 0;
  return function != nullptr && function(&version) == 0 && (version >= kLayout) == (CUDART_VERSION >= kLayout);
}

}  // namespace

std::unique_ptr<GraphCapture> make_cuda_graph(const Placement& placement, const GraphCapture* sibling) {
  if (!fits_libtorch()) throw std::runtime_error("the CUDA headers of this build do not match libtorch's CUDA");
  return std::make_unique<CudaGraph>(placement, static_cast<const CudaGraph*>(sibling));
}

}  // namespace tuft::engine::torch
