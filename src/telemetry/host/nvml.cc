// NVIDIA's management library (NVML).
#include <array>

#include "telemetry/host/gpu_library.h"
#include "telemetry/host/shared_library.h"

namespace tuft::telemetry::internal {
namespace {

// The declarations of nvml.h that are needed. Its ABI is stable, and no package that we use contains the header.
using NvmlDevice = void*;
struct NvmlUtilization {
  unsigned gpu;
  unsigned memory;
};
struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
constexpr int kNvmlSuccess = 0;
constexpr int kTemperatureOfGpu = 0;
constexpr unsigned kNvmlTextBytes = 96;  // NVML_DEVICE_NAME_V2_BUFFER_SIZE, the longest text read

struct NvmlFunctions {
  int (*init)() = nullptr;
  int (*count_devices)(unsigned*) = nullptr;
  int (*get_device)(unsigned, NvmlDevice*) = nullptr;
  int (*get_utilization)(NvmlDevice, NvmlUtilization*) = nullptr;
  int (*get_memory)(NvmlDevice, NvmlMemory*) = nullptr;
  // Null if the driver is too old.
  int (*get_power)(NvmlDevice, unsigned*) = nullptr;             // mW
  int (*get_energy)(NvmlDevice, unsigned long long*) = nullptr;  // mJ
  int (*get_temperature)(NvmlDevice, int, unsigned*) = nullptr;  // Cel
  int (*get_name)(NvmlDevice, char*, unsigned) = nullptr;
  int (*get_uuid)(NvmlDevice, char*, unsigned) = nullptr;
  int (*get_driver_version)(char*, unsigned) = nullptr;
  int (*get_cuda_version)(int*) = nullptr;  // 12040 for 12.4
};

bool load_all(const SharedLibrary& library, NvmlFunctions& nvml) {
  library.load("nvmlDeviceGetPowerUsage", nvml.get_power);
  library.load("nvmlDeviceGetTotalEnergyConsumption", nvml.get_energy);
  library.load("nvmlDeviceGetTemperature", nvml.get_temperature);
  library.load("nvmlDeviceGetName", nvml.get_name);
  library.load("nvmlDeviceGetUUID", nvml.get_uuid);
  library.load("nvmlSystemGetDriverVersion", nvml.get_driver_version);
  library.load("nvmlSystemGetCudaDriverVersion", nvml.get_cuda_version);
  return library.load("nvmlInit_v2", nvml.init) && library.load("nvmlDeviceGetCount_v2", nvml.count_devices) &&
         library.load("nvmlDeviceGetHandleByIndex_v2", nvml.get_device) &&
         library.load("nvmlDeviceGetUtilizationRates", nvml.get_utilization) &&
         library.load("nvmlDeviceGetMemoryInfo", nvml.get_memory);
}

template <typename... Arguments, typename... Given>
std::string text_of(int (*get)(Arguments...), Given... given) {
  std::array<char, kNvmlTextBytes + 1> text{};
  if (get == nullptr || get(given..., text.data(), kNvmlTextBytes) != kNvmlSuccess) return "";
  text.back() = 0;
  return text.data();
}

class Nvml final : public GpuLibrary {
 public:
  explicit Nvml(const NvmlFunctions& nvml) : nvml_(nvml) {
    const std::string driver = text_of(nvml_.get_driver_version);
    const std::string cuda = cuda_version();
    unsigned count = 0;
    if (nvml_.count_devices(&count) != kNvmlSuccess) return;
    for (unsigned i = 0; i < count; ++i) {
      NvmlDevice device = nullptr;
      if (nvml_.get_device(i, &device) != kNvmlSuccess) continue;
      devices_.push_back(device);
      gpus_.push_back({.name = text_of(nvml_.get_name, device),
                       .id = text_of(nvml_.get_uuid, device),
                       .vendor = "NVIDIA",
                       .driver_version = driver,
                       .runtime = "CUDA",
                       .runtime_version = cuda});
    }
  }

  const std::vector<GpuInfo>& gpus() const override { return gpus_; }

  std::vector<GpuUse> read() const override {
    std::vector<GpuUse> out;
    for (NvmlDevice device : devices_) {
      GpuUse& use = out.emplace_back();
      NvmlUtilization utilization{};
      if (nvml_.get_utilization(device, &utilization) == kNvmlSuccess && utilization.gpu <= 100)
        use.utilization = utilization.gpu / 100.0;
      NvmlMemory memory{};
      if (nvml_.get_memory(device, &memory) == kNvmlSuccess) {
        use.memory_used = static_cast<double>(memory.used);
        use.memory_total = static_cast<double>(memory.total);
      }
      unsigned value = 0;
      if (nvml_.get_power != nullptr && nvml_.get_power(device, &value) == kNvmlSuccess) use.power_watts = value * 1e-3;
      if (nvml_.get_temperature != nullptr && nvml_.get_temperature(device, kTemperatureOfGpu, &value) == kNvmlSuccess)
        use.temperature_celsius = value;
      unsigned long long energy = 0;
      if (nvml_.get_energy != nullptr && nvml_.get_energy(device, &energy) == kNvmlSuccess)
        use.energy_joules = static_cast<double>(energy) * 1e-3;
    }
    return out;
  }

 private:
  // Returns the newest CUDA that the driver supports.
  std::string cuda_version() const {
    int version = 0;
    if (nvml_.get_cuda_version == nullptr || nvml_.get_cuda_version(&version) != kNvmlSuccess) return "";
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  }

  const NvmlFunctions nvml_;
  std::vector<NvmlDevice> devices_;
  std::vector<GpuInfo> gpus_;
};

}  // namespace

std::unique_ptr<GpuLibrary> open_nvml(const char* library) {
  NvmlFunctions functions;
  if (!load_all(SharedLibrary(library), functions) || functions.init() != kNvmlSuccess) return nullptr;
  auto nvml = std::make_unique<Nvml>(functions);
  if (nvml->gpus().empty()) return nullptr;
  return nvml;
}

}  // namespace tuft::telemetry::internal
