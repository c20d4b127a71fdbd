// The device that the engine computes on, and its clock. Internal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "base/result.h"
#include "engine/weights/weights_dtype.h"

namespace tuft::engine::torch {

// "cpu", "cuda", "cuda:N". kInvalidArgument, with what is there, for anything else.
Result<c10::Device> parse_device(std::string_view text);

// Bytes that are free on the device; nullopt where it cannot be asked.
std::optional<int64_t> free_memory(const c10::Device& device);

// As its driver calls it; "" for a CPU, and where it cannot be asked.
std::string device_name(const c10::Device& device);

// Of tensors: where they are, and what is computed in.
struct Place {
  c10::Device device = c10::Device(c10::kCPU);
  at::ScalarType weights = at::kFloat;
  at::ScalarType activations = at::kFloat;

  at::TensorOptions f32() const { return at::TensorOptions().device(device).dtype(at::kFloat); }
  at::TensorOptions f32_host() const { return at::TensorOptions().dtype(at::kFloat); }
  at::TensorOptions active() const { return at::TensorOptions().device(device).dtype(activations); }
  bool is_cuda() const { return device.is_cuda(); }
};

}  // namespace tuft::engine::torch
