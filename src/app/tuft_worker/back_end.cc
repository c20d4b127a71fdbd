#include "app/tuft_worker/back_end.h"

#include <algorithm>
#include <optional>
#include <string>

#include "engine/native/native_engine.h"
#include "telemetry/host/machine.h"
#ifdef TUFT_TORCH
#include "engine/torch/torch_engine.h"
#endif

namespace tuft::app {
namespace {

std::optional<int64_t> free_memory_of_machine() {
  const auto memory = telemetry::internal::read_memory_use();
  if (!memory) return std::nullopt;
  return static_cast<int64_t>(memory->total - std::min(memory->used, memory->total));
}

// The native engine stores a key and a value in f32 for each layer and head.
int64_t native_kv_bytes_per_token(const engine::ModelSpec& model) {
  return int64_t{2} * static_cast<int64_t>(sizeof(float)) * model.layers * model.kv_heads * model.head_dim;
}

Result<std::unique_ptr<engine::Engine>> make_native(const WorkerFlags& flags, engine::WeightsDtype dtype,
                                                    const PlanKv& plan_kv) {
  if (flags.device != "cpu") {
    return invalid_argument("the device of base model " + flags.model_name + " is " + flags.device +
                                ", but the native back end computes on the CPU: set backend: torch, or device: cpu",
                            "device");
  }
  engine::NativeOptions options;
  options.threads = flags.threads;
  options.weights_dtype = dtype;
  options.free_memory = free_memory_of_machine;
  options.plan_kv = [&](const engine::ModelSpec& model) {
    return plan_kv(model, {free_memory_of_machine().value_or(0), native_kv_bytes_per_token(model), false});
  };
  return engine::make_native_engine(flags.model_path, options);
}

#ifdef TUFT_TORCH
Result<std::unique_ptr<engine::Engine>> make_torch(const WorkerFlags& flags, engine::WeightsDtype dtype,
                                                   const PlanKv& plan_kv) {
  engine::TorchOptions options;
  options.device = flags.device;
  options.threads = flags.threads;
  options.weights_dtype = dtype;
  options.capture_decode = flags.cuda_graphs && flags.device != "cpu";
  options.plan_kv = [&](const engine::ModelSpec& model, int64_t kv_bytes_per_token) {
    DeviceMemory device = device_memory(flags);
    device.kv_bytes_per_token = kv_bytes_per_token;
    return plan_kv(model, device);
  };
  return engine::make_torch_engine(flags.model_path, options);
}
#else
Result<std::unique_ptr<engine::Engine>> make_torch(const WorkerFlags& flags, engine::WeightsDtype, const PlanKv&) {
  return invalid_argument("the back end of base model " + flags.model_name +
                              " is torch, but this tuft-worker was built without libtorch: build it with `cmake "
                              "--preset torch -DTorch_DIR=...` (docs/torch.md), or set backend: native",
                          "no_torch");
}
#endif

}  // namespace

DeviceMemory device_memory([[maybe_unused]] const WorkerFlags& flags) {
#ifdef TUFT_TORCH
  if (flags.backend == "torch" && flags.device != "cpu") {
    return {engine::torch_free_memory(flags.device).value_or(0), 0, true};
  }
#endif
  return {free_memory_of_machine().value_or(0), 0, false};
}

Result<std::unique_ptr<engine::Engine>> make_engine(const WorkerFlags& flags, const PlanKv& plan_kv) {
  TUFT_ASSIGN(const engine::WeightsDtype dtype, parse_weights_dtype(flags.weights_dtype));
  if (flags.backend == "native") return make_native(flags, dtype, plan_kv);
  if (flags.backend == "torch") return make_torch(flags, dtype, plan_kv);
  return invalid_argument("--backend must be native or torch");
}

}  // namespace tuft::app
