#include "engine/torch/recording.h"

#include <utility>

namespace tuft::engine::torch {
namespace {

// A CPU has nothing to record: the work is done again. So that what surrounds a recording can be tested anywhere.
class WorkAgain final : public Recording {
 public:
  void record(std::function<void()> work) override { work_ = std::move(work); }
  void play() override { work_(); }

 private:
  std::function<void()> work_;
};

}  // namespace

std::unique_ptr<Recording> make_recording(const Place& place, [[maybe_unused]] const Recording* sibling) {
  if (!place.is_cuda()) return std::make_unique<WorkAgain>();
#ifdef TUFT_CUDA_GRAPHS
  return make_cuda_graph(place, sibling);
#else
  return nullptr;
#endif
}

const char* no_recording([[maybe_unused]] const Place& place) {
#ifndef TUFT_CUDA_GRAPHS
  if (place.is_cuda()) return "this build did not find CUDA's headers";
#endif
  return "";
}

}  // namespace tuft::engine::torch
