// The CPU back end: our kernels for decode and LoRA, BLIS for the large products, one thread pool of our own.
#pragma once

#include <filesystem>
#include <memory>

#include "engine/engine.h"

namespace tuft::engine {

enum class WeightsDtype : uint8_t { kAuto, kFloat32, kBfloat16 };

struct NativeOptions {
  int threads = 0;  // 0: one per core that this process may run on
  WeightsDtype weights_dtype = WeightsDtype::kAuto;  // kAuto: bf16 where the file is bf16, else f32
  int64_t kv_bytes_max = 0;  // 0: no limit
  // The same bits whatever else shares the pass or step, and sampled log-probabilities bitwise equal to forward()'s.
  bool fixed_shape = false;
};

// Reads the model directory; kNotFound, kInvalidArgument, kUnimplemented, kDataLoss say what is wrong with it.
Result<std::unique_ptr<Engine>> make_native_engine(const std::filesystem::path& model_directory,
                                                   const NativeOptions& options);

}  // namespace tuft::engine
