// The torch back end computes with libtorch: on CUDA GPUs, and on CPUs for comparison. Its results equal those of the
// native back end within rounding. Other work in the same pass or step changes a result by rounding only.
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
  int threads = 0;             // of libtorch on the CPU; 0: its default
  WeightsDtype weights_dtype = WeightsDtype::kAuto;
  // Type of activations and of the KV cache. kAuto: bf16 on a GPU with bf16 weights, else f32. The residual stream,
  // norms, softmax and adapters are f32 in any case; with bf16, products read a copy of the adapters in bf16.
  WeightsDtype activations = WeightsDtype::kAuto;
  int64_t kv_bytes_max = 0;  // as in NativeOptions; allocated whole at start
  // If set, it returns kv_bytes_max; called once the weights are on the device.
  std::function<Result<int64_t>(const ModelSpec& model, int64_t kv_bytes_per_token)> plan_kv = {};
  // Captures steps of one token per sequence once per shape and replays them: on a GPU as CUDA graphs, if the build
  // supports them, and on a CPU, for tests, by running the work again. Requires a limit of the KV cache.
  bool capture_decode = false;
  // Limit of the activations of a training pass in bytes. Above it blocks keep only their input, and the backward pass
  // recomputes the rest. 0: a quarter of the memory that weights and KV cache leave free on a GPU, 2 GiB on a CPU.
  int64_t activation_bytes_max = 0;
  // Limit of the keys and values that attention gathers for a layer of a decode step, in bytes. A step with more is
  // divided, and reads the weights once for each part; a single sequence is never divided. Samples of one prompt share
  // its blocks in the cache, but each gathers them. 0: a sixteenth of the memory that weights and KV cache leave free
  // on a GPU, at least 256 MiB.
  int64_t gathered_bytes_max = 0;
};

// Reads the model directory. Returns the errors of make_native_engine(), and kInvalidArgument for a device that does
// not exist, or if the weights do not fit into its memory.
Result<std::unique_ptr<Engine>> make_torch_engine(const std::filesystem::path& model_directory,
                                                  const TorchOptions& options);

// Makes the engine from weights in memory.
Result<std::unique_ptr<Engine>> make_torch_engine(const ModelSpec& spec, const TensorSource& source,
                                                  const TorchOptions& options);

// Returns the number of steps of such an engine that were captured or replayed.
int64_t torch_captured_steps(const Engine& engine);

// Returns the libtorch of this build and its devices, for messages: "2.15, cpu and 2 cuda devices".
std::string describe_libtorch();
int64_t torch_cuda_devices();
// Returns the free bytes on a device; nullopt for the CPU, or if the device cannot be queried.
std::optional<int64_t> torch_free_memory(const std::string& device);

}  // namespace tuft::engine
