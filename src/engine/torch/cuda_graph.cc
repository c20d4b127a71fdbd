// The only file that sees CUDA's headers, compiled where they are there.
#include <dlfcn.h>
#include <stdexcept>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "engine/torch/recording.h"

namespace tuft::engine::torch {
namespace {

class CudaGraph final : public Recording {
 public:
  CudaGraph(const Place& place, const CudaGraph* sibling)
      : stream_(sibling != nullptr ? sibling->stream_ : c10::cuda::getStreamFromPool(false, place.device.index())),
        pool_(sibling != nullptr ? sibling->pool_ : at::cuda::graph_pool_handle()) {}

  void record(std::function<void()> work) override {
    // The default stream cannot be captured; what was launched on it comes first.
    c10::cuda::getCurrentCUDAStream(stream_.device_index()).synchronize();
    const c10::StreamGuard stream(stream_);
    // Other threads may do with the device what they like.
    graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      end_quietly();
      throw;
    }
    graph_.capture_end();
  }

  void play() override { graph_.replay(); }

 private:
  void end_quietly() {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
      // What `work` threw says more.
    }
  }

  // One of each for all siblings: libraries keep a workspace a stream.
  c10::cuda::CUDAStream stream_;
  at::cuda::MempoolId_t pool_;
  at::cuda::CUDAGraph graph_;
};

// What at::cuda::CUDAGraph holds depends on which side of 12.4 its headers were compiled.
bool fits_libtorch() {
  constexpr int kLayout = 12040;
  using Function = int (*)(int* version);
  const auto function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion"));
  int version = 0;
  return function != nullptr && function(&version) == 0 && (version >= kLayout) == (CUDART_VERSION >= kLayout);
}

}  // namespace

std::unique_ptr<Recording> make_cuda_graph(const Place& place, const Recording* sibling) {
  if (!fits_libtorch()) throw std::runtime_error("the CUDA headers of this build are not of libtorch's CUDA");
  return std::make_unique<CudaGraph>(place, static_cast<const CudaGraph*>(sibling));
}

}  // namespace tuft::engine::torch
