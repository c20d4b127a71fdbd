// Reads GPUs through NVIDIA's management library (NVML), loaded at run time. Internal to telemetry.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tuft::telemetry::internal {

// A value that the GPU or its driver does not report is absent.
struct GpuUse {
  std::optional<double> utilization = {};  // 0 .. 1
  std::optional<double> memory_used = {};  // bytes
  std::optional<double> memory_total = {};
  std::optional<double> power_watts = {};
  std::optional<double> energy_joules = {};  // since the driver was loaded
  std::optional<double> temperature_celsius = {};
};

struct GpuInfo {
  std::string name;
  std::string uuid;  // "GPU-..."
};

// Thread-safe.
class Nvml {
 public:
  // Returns null if there is no library, driver or GPU.
  static std::unique_ptr<Nvml> open(const char* library = "libnvidia-ml.so.1");
  virtual ~Nvml() = default;
  // Returns the GPUs in NVML's order; read() returns their values in the same order.
  virtual const std::vector<GpuInfo>& gpus() const = 0;
  virtual std::vector<GpuUse> read() const = 0;
  virtual std::string driver_version() const = 0;
};

}  // namespace tuft::telemetry::internal
