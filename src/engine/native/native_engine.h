// The native back end computes on CPUs, with its own packed kernels for training and decoding and one thread pool.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "engine/engine.h"
#include "engine/weights/weights_dtype.h"

namespace tuft::engine {

struct NativeOptions {
  int threads = 0;  // 0: one per core that this process may run on
  WeightsDtype weights_dtype = WeightsDtype::kAuto;
  // Limit of the KV cache in bytes. 0: no limit, and nothing is kept for later prompts after a sequence is closed.
  int64_t kv_bytes_max = 0;
  // If set, it returns kv_bytes_max; called once the weights are in memory.
  std::function<Result<int64_t>(const ModelSpec& model)> plan_kv;
  // Limit of the activations of a training pass in bytes. Above it blocks keep only their input, and the backward pass
  // recomputes the rest. What such a pass takes is given back when it ends, if even that is more.
  int64_t activation_bytes_max = int64_t{2} << 30;
  // If set, it returns how many bytes of memory are free, or nothing if that is not known. A pass that needs more fails
  // with kResourceExhausted before it takes any: the system promises memory that it does not have, and ends who uses
  // it.
  std::function<std::optional<int64_t>()> free_memory;
  // Requests the same bits whatever else shares the pass or step, and sampled log-probabilities bitwise equal to those
  // of forward(). This back end always does that.
  bool fixed_shape = false;
};

// Reads the model directory. Returns kNotFound, kInvalidArgument, kUnimplemented or kDataLoss with the reason.
Result<std::unique_ptr<Engine>> make_native_engine(const std::filesystem::path& model_directory,
                                                   const NativeOptions& options);

}  // namespace tuft::engine
