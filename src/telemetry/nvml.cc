#include "telemetry/nvml.h"

#include <dlfcn.h>

namespace tuft::telemetry::internal {
namespace {

// The few declarations of nvml.h that are needed; its ABI is stable and the header is in no package of ours.
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
constexpr int kSuccess = 0;

template <typename Function>
bool load(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

class LoadedNvml final : public Nvml {
 public:
  static std::unique_ptr<Nvml> make(void* library) {
    auto nvml = std::unique_ptr<LoadedNvml>(new LoadedNvml);
    int (*init)() = nullptr;
    int (*count_devices)(unsigned*) = nullptr;
    int (*get_device)(unsigned, NvmlDevice*) = nullptr;
    if (!load(library, "nvmlInit_v2", init) || !load(library, "nvmlDeviceGetCount_v2", count_devices) ||
        !load(library, "nvmlDeviceGetHandleByIndex_v2", get_device) ||
        !load(library, "nvmlDeviceGetUtilizationRates", nvml->get_utilization_) ||
        !load(library, "nvmlDeviceGetMemoryInfo", nvml->get_memory_))
      return nullptr;
    unsigned count = 0;
    if (init() != kSuccess || count_devices(&count) != kSuccess || count == 0) return nullptr;
    for (unsigned i = 0; i < count; ++i) {
      NvmlDevice device = nullptr;
      if (get_device(i, &device) == kSuccess) nvml->devices_.push_back(device);
    }
    if (nvml->devices_.empty()) return nullptr;
    return nvml;
  }

  std::vector<GpuUse> read() override {
    std::vector<GpuUse> out;
    for (NvmlDevice device : devices_) {
      GpuUse& use = out.emplace_back();
      NvmlUtilization utilization{};
      if (get_utilization_(device, &utilization) == kSuccess) use.utilization_percent = utilization.gpu;
      NvmlMemory memory{};
      if (get_memory_(device, &memory) == kSuccess) {
        use.memory_used = static_cast<double>(memory.used);
        use.memory_total = static_cast<double>(memory.total);
      }
    }
    return out;
  }

 private:
  LoadedNvml() = default;

  int (*get_utilization_)(NvmlDevice, NvmlUtilization*) = nullptr;
  int (*get_memory_)(NvmlDevice, NvmlMemory*) = nullptr;
  std::vector<NvmlDevice> devices_;
};

}  // namespace

std::unique_ptr<Nvml> Nvml::open() {
  // Never unloaded: NVML keeps threads of its own.
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : LoadedNvml::make(library);
}

}  // namespace tuft::telemetry::internal
