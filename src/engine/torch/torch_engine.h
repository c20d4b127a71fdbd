// The back end on libtorch: any device that it has, CUDA GPUs above all, and CPUs for comparison. Same port, same
// numbers within rounding; results depend on the company in a pass or step by rounding only, not by contents.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/weights/tensor_source.h"
#include "engine/weights/weights_dtype.h"

namespace tuft::engine {

struct TorchOptions {
  std::string device = "cpu";  // or "cuda", "cuda:N"
  int threads = 0;             // of libtorch on the CPU; 0: what it takes by itself
  WeightsDtype weights_dtype = WeightsDtype::kAuto;
  // Of activations and the KV cache. kAuto: bf16 on a GPU with bf16 weights, else f32. The residual stream, norms,
  // softmax and adapters are f32 in any case.
  WeightsDtype activations = WeightsDtype::kAuto;
  int64_t kv_bytes_max = 0;  // as NativeOptions has it; taken whole at start
  // Where set, what kv_bytes_max shall be: asked once the weights are on the device.
  std::function<Result<int64_t>(const ModelSpec& model, int64_t kv_bytes_per_token)> plan_kv = {};
  // Steps of one token a sequence are recorded, once a shape, and played again: on a GPU as CUDA graphs, where the
  // build has them, and on a CPU by doing the work again, for tests. Needs a limit of the KV cache.
  bool record_decode = false;
  // Of a training pass. Over it blocks keep only their input and are computed a second time on the way back.
  // 0: a quarter of what is free on a GPU beside weights and KV cache, 2 GiB on a CPU.
  int64_t activation_bytes_max = 0;
};

// Reads the model directory; errors as make_native_engine()'s. kInvalidArgument for a device that is not there, and
// with the sum written out where the weights do not fit into its memory.
Result<std::unique_ptr<Engine>> make_torch_engine(const std::filesystem::path& model_directory,
                                                  const TorchOptions& options);

// The engine from weights that are already at hand.
Result<std::unique_ptr<Engine>> make_torch_engine(const ModelSpec& spec, const TensorSource& source,
                                                  const TorchOptions& options);

// Steps of such an engine that were recorded, or played from a recording.
int64_t torch_recorded_steps(const Engine& engine);

// "2.15, cpu and 2 cuda devices": the libtorch of this build and what it sees, for messages.
std::string describe_libtorch();
int64_t torch_cuda_devices();
// Bytes that are free on a device; nullopt for the CPU, whose memory is the machine's, and where it cannot be asked.
std::optional<int64_t> torch_free_memory(const std::string& device);

}  // namespace tuft::engine
