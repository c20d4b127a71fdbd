// The device that the engine computes on, and its clock. Internal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/result.h"
#include "engine/weights/weights_dtype.h"

namespace tuft::engine::torch {

// Parses "cpu", "cuda" or "cuda:N". Returns kInvalidArgument, with the available devices, for anything else.
Result<c10::Device> parse_device(std::string_view text);

// Returns the free bytes on the device; nullopt if it cannot be queried.
std::optional<int64_t> free_memory(const c10::Device& device);

// Returns a sixteenth of the free bytes on the device, at least 256 MiB: the limit of what is kept or made beside the
// weights, the KV cache and the activations of training, for each kind.
int64_t side_bytes_max(const c10::Device& device);

// Returns the driver's name of the device; "" for a CPU, or if it cannot be queried.
std::string device_name(const c10::Device& device);

// The device of tensors, and their types in storage and computation.
struct Placement {
  c10::Device device = c10::Device(c10::kCPU);
  at::ScalarType weights = at::kFloat;
  at::ScalarType activations = at::kFloat;

  at::TensorOptions f32() const { return at::TensorOptions().device(device).dtype(at::kFloat); }
  at::TensorOptions f32_host() const { return at::TensorOptions().dtype(at::kFloat); }
  at::TensorOptions active() const { return at::TensorOptions().device(device).dtype(activations); }
  bool is_cuda() const { return device.is_cuda(); }
};

// Returns memory of the host, not initialised, that the device itself reads and writes: copies are several times as
// fast as with ordinary memory, and one to the device need not wait for what was launched before.
at::Tensor host_empty(at::IntArrayRef sizes, at::ScalarType type, const Placement& placement);
// Copies to the device, without waiting.
at::Tensor to_device(const std::vector<int64_t>& values, const Placement& placement);
at::Tensor to_device(const std::vector<int32_t>& values, const Placement& placement);
at::Tensor to_device(const std::vector<float>& values, const Placement& placement);

}  // namespace tuft::engine::torch
