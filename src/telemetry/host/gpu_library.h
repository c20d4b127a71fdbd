// The port to the management libraries of GPU vendors, which are loaded at run time. Internal to telemetry.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tuft::telemetry::internal {

// A value that the GPU, its driver or its library does not report is absent.
struct GpuUse {
  std::optional<double> utilization = {};  // 0 .. 1
  std::optional<double> memory_used = {};  // bytes
  std::optional<double> memory_total = {};
  std::optional<double> power_watts = {};
  std::optional<double> energy_joules = {};  // since the driver was loaded
  std::optional<double> temperature_celsius = {};
};

// A text that is not known is empty.
struct GpuInfo {
  std::string name;
  std::string id;  // such as "GPU-..."; the same after a restart
  std::string vendor;
  std::string driver_version;
  std::string runtime;  // "CUDA" or "ROCm"
  std::string runtime_version;
};

// The GPUs that one library finds. Thread-safe. read() may wait for a driver, so a thread that serves requests must not
// call it.
class GpuLibrary {
 public:
  virtual ~GpuLibrary() = default;
  // Returns at least one GPU; read() returns their values in the same order.
  virtual const std::vector<GpuInfo>& gpus() const = 0;
  virtual std::vector<GpuUse> read() const = 0;
};

// Returns the GPUs of all vendors, NVIDIA's first; null if there is none. The position of a GPU is its gpu_id. Ids are
// unique: a GPU without one gets its vendor and its position.
std::unique_ptr<GpuLibrary> open_gpus();
std::unique_ptr<GpuLibrary> join_gpu_libraries(std::vector<std::unique_ptr<GpuLibrary>> libraries);

// Each returns null if the library cannot be loaded, lacks a function that is needed, or finds no GPU.
// NVIDIA's management library.
std::unique_ptr<GpuLibrary> open_nvml(const char* library = "libnvidia-ml.so.1");
// AMD's System Management Interface, from version 24 (ROCm 6.0).
std::unique_ptr<GpuLibrary> open_amd_smi(const char* library);
// Its predecessor, which ROCm 10 no longer has.
std::unique_ptr<GpuLibrary> open_rocm_smi(const char* library);

// Returns the version of the installed ROCm, such as "6.4.1"; "" if there is none.
std::string rocm_version();

}  // namespace tuft::telemetry::internal
