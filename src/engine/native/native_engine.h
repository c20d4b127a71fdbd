// The CPU back end: packed kernels of our own for training and decoding alike, and one thread pool.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "engine/engine.h"
#include "engine/weights/weights_dtype.h"

namespace tuft::engine {

struct NativeOptions {
  int threads = 0;  // 0: one per core that this process may run on
  WeightsDtype weights_dtype = WeightsDtype::kAuto;
  // The KV cache. 0: no limit, and then nothing of a sequence that was closed is kept for later prompts.
  int64_t kv_bytes_max = 0;
  // Where set, what kv_bytes_max shall be: asked once the weights are in memory.
  std::function<Result<int64_t>(const ModelSpec& model)> plan_kv;
  // Of a training pass. Over it blocks keep only their input and are computed a second time on the way back.
  int64_t activation_bytes_max = int64_t{2} << 30;
  // The same bits whatever else shares the pass or step, and sampled log-probabilities bitwise equal to forward()'s.
  // This back end always does that.
  bool fixed_shape = false;
};

// Reads the model directory; kNotFound, kInvalidArgument, kUnimplemented, kDataLoss say what is wrong with it.
Result<std::unique_ptr<Engine>> make_native_engine(const std::filesystem::path& model_directory,
                                                   const NativeOptions& options);

}  // namespace tuft::engine
