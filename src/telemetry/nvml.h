// NVIDIA's management library, loaded at run time. Internal to telemetry.
#pragma once

#include <memory>
#include <vector>

namespace tuft::telemetry::internal {

struct GpuUse {
  double utilization_percent = 0;
  double memory_used = 0;  // bytes
  double memory_total = 0;
};

// Confined to one thread at a time.
class Nvml {
 public:
  // Null where the library, the driver or a GPU is absent.
  static std::unique_ptr<Nvml> open();
  virtual ~Nvml() = default;
  // One entry a GPU, in NVML's order. A GPU that does not answer reads as zeros.
  virtual std::vector<GpuUse> read() = 0;
};

}  // namespace tuft::telemetry::internal
