// NVIDIA's management library, loaded at run time. Internal to telemetry.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tuft::telemetry::internal {

// What a GPU or its driver does not tell is absent.
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

// Thread-safe, as NVML is.
class Nvml {
 public:
  // Null where the library, the driver or a GPU is absent.
  static std::unique_ptr<Nvml> open(const char* library = "libnvidia-ml.so.1");
  virtual ~Nvml() = default;
  // In NVML's order, as read() has them.
  virtual const std::vector<GpuInfo>& gpus() const = 0;
  virtual std::vector<GpuUse> read() const = 0;
  virtual std::string driver_version() const = 0;
};

}  // namespace tuft::telemetry::internal
