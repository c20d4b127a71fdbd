#include "engine/torch/device.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <dlfcn.h>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include "base/error.h"
#include "engine/torch/torch_engine.h"

namespace tuft::engine {
namespace torch {

Result<c10::Device> parse_device(std::string_view text) {
  if (text == "cpu") return c10::Device(c10::kCPU);
  int index = 0;
  const std::string_view number = text == "cuda" ? "0" : text.substr(std::min<size_t>(5, text.size()));
  const auto [end, failure] = std::from_chars(number.data(), number.data() + number.size(), index);
  const bool form = text == "cuda" || text.substr(0, 5) == "cuda:";
  if (!form || failure != std::errc() || end != number.data() + number.size() || index < 0) {
    return invalid_argument("device '" + std::string(text) + "' is unknown: use cpu, cuda or cuda:N", "device");
  }
  if (index >= torch_cuda_devices()) {
    return invalid_argument("there is no device " + std::string(text) + " (libtorch " + describe_libtorch() +
                                "): use another device, a libtorch that was built for CUDA, or backend: native",
                            "device");
  }
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

std::optional<int64_t> free_memory(const c10::Device& device) {
  if (!device.is_cuda()) return std::nullopt;
  // From libcudart, which a libtorch for CUDA has loaded, so that CUDA's headers are not needed.
  using Function = int (*)(size_t* free, size_t* total);
  const auto function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "cudaMemGetInfo"));
  const c10::OptionalDeviceGuard guard(device);
  size_t free = 0;
  size_t total = 0;
  if (function == nullptr || function(&free, &total) != 0) return std::nullopt;
  return static_cast<int64_t>(free);
}

int64_t side_bytes_max(const c10::Device& device) {
  return std::max(int64_t{256} << 20, free_memory(device).value_or(0) / 16);
}

std::string device_name(const c10::Device& device) {
  if (!device.is_cuda()) return {};
  // The driver's library, which every program that uses the device has loaded.
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return {};
  using Get = int (*)(int* handle, int index);
  using Name = int (*)(char* name, int size, int handle);
  const auto get = reinterpret_cast<Get>(dlsym(driver, "cuDeviceGet"));
  const auto name = reinterpret_cast<Name>(dlsym(driver, "cuDeviceGetName"));
  int handle = 0;
  std::array<char, 256> text{};
  const bool known = get != nullptr && name != nullptr && get(&handle, device.index()) == 0 &&
                     name(text.data(), static_cast<int>(text.size() - 1), handle) == 0;
  dlclose(driver);
  return known ? std::string(text.data()) : std::string();
}

at::Tensor host_empty(at::IntArrayRef sizes, at::ScalarType type, const Placement& placement) {
  return at::empty(sizes, at::TensorOptions().dtype(type).pinned_memory(placement.is_cuda()));
}

namespace {

template <typename Number>
at::Tensor copy_to_device(const std::vector<Number>& values, at::ScalarType type, const Placement& placement) {
  const at::Tensor host = host_empty({static_cast<int64_t>(values.size())}, type, placement);
  std::copy(values.begin(), values.end(), host.data_ptr<Number>());
  return host.to(placement.device, type, true);
}

}  // namespace

at::Tensor to_device(const std::vector<int64_t>& values, const Placement& placement) {
  return copy_to_device(values, at::kLong, placement);
}

at::Tensor to_device(const std::vector<int32_t>& values, const Placement& placement) {
  return copy_to_device(values, at::kInt, placement);
}

at::Tensor to_device(const std::vector<float>& values, const Placement& placement) {
  return copy_to_device(values, at::kFloat, placement);
}

}  // namespace torch

int64_t torch_cuda_devices() {
  return static_cast<int64_t>(at::getNumGPUs());
}

std::string describe_libtorch() {
  const int64_t devices = torch_cuda_devices();
  return std::to_string(TUFT_TORCH_VERSION / 10000) + "." + std::to_string(TUFT_TORCH_VERSION / 100 % 100) +
         ", cpu and " + std::to_string(devices) + (devices == 1 ? " cuda device" : " cuda devices");
}

std::optional<int64_t> torch_free_memory(const std::string& device) {
  const auto parsed = torch::parse_device(device);
  return parsed.ok() ? torch::free_memory(*parsed) : std::nullopt;
}

}  // namespace tuft::engine
