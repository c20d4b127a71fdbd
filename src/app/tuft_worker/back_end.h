// Which engine a worker computes with: one place knows the back ends that this program was built with.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "app/tuft_worker/options.h"
#include "base/result.h"
#include "engine/engine.h"

namespace tuft::app {

// The memory of the device that the engine computes on.
struct DeviceMemory {
  int64_t free = 0;  // 0: not known
  int64_t kv_bytes_per_token = 0;
  bool kv_is_taken = false;  // the KV cache's memory is taken at start, so that later `free` is without it
};

// Gives the limit of the KV cache in bytes, once the weights are there.
using PlanKv = std::function<Result<int64_t>(const engine::ModelSpec& model, const DeviceMemory& memory)>;

// --backend and --device decide. kInvalidArgument, with the cure, for what this program has not.
Result<std::unique_ptr<engine::Engine>> make_engine(const WorkerFlags& flags, const PlanKv& plan_kv);

// As it is now; kv_bytes_per_token is 0.
DeviceMemory device_memory(const WorkerFlags& flags);

}  // namespace tuft::app
