// Makes the engine of a worker. Only back_end.cc knows which back ends this program was built with.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "app/tuft_worker/options.h"
#include "base/result.h"
#include "engine/engine.h"

namespace tuft::app {

// The memory of the engine's device.
struct DeviceMemory {
  int64_t free = 0;  // 0: unknown
  int64_t kv_bytes_per_token = 0;
  bool kv_is_taken = false;  // the KV cache is allocated at start, so that a later `free` excludes it
};

// Returns the limit of the KV cache in bytes. Called once the weights are loaded.
using PlanKv = std::function<Result<int64_t>(const engine::ModelSpec& model, const DeviceMemory& memory)>;

// Makes the engine of --backend and --device. Returns kInvalidArgument if this program does not support them.
Result<std::unique_ptr<engine::Engine>> make_engine(const WorkerFlags& flags, const PlanKv& plan_kv);

// Returns the current state; kv_bytes_per_token is 0.
DeviceMemory device_memory(const WorkerFlags& flags);

}  // namespace tuft::app
