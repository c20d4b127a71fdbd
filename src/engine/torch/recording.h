// Work for the device that is recorded once and then played again: launched whole, not operation by operation.
// Internal. Functions may throw what libtorch throws.
#pragma once

#include <functional>
#include <memory>

#include "engine/torch/device.h"

namespace tuft::engine::torch {

class Recording {
 public:
  virtual ~Recording() = default;
  // Once. `work` allocates and launches, but waits for nothing and reads nothing back; everything that it reads stays
  // where it is. It was run before, so that libraries have set themselves up. May leave it undone until play().
  virtual void record(std::function<void()> work) = 0;
  // What the work made is overwritten by the next play() of any recording of these siblings.
  virtual void play() = 0;
};

// Null where there is none. `sibling` may be null; with one, what is between in both shares memory.
std::unique_ptr<Recording> make_recording(const Place& place, const Recording* sibling);
// Why there is none; empty: there is.
const char* no_recording(const Place& place);

#ifdef TUFT_CUDA_GRAPHS
std::unique_ptr<Recording> make_cuda_graph(const Place& place, const Recording* sibling);
#endif

}  // namespace tuft::engine::torch
