#include "telemetry/host/gpu_library.h"

#include <filesystem>
#include <initializer_list>
#include <set>
#include <utility>

#include "telemetry/host/shared_library.h"

namespace tuft::telemetry::internal {
namespace {

// A package for users may lack the name without a version, and a linker may not know ROCm's folder.
constexpr std::initializer_list<const char*> kAmdSmi{"libamd_smi.so",    "libamd_smi.so.27",
                                                     "libamd_smi.so.26", "libamd_smi.so.25",
                                                     "libamd_smi.so.24", "/opt/rocm/lib/libamd_smi.so"};
constexpr std::initializer_list<const char*> kRocmSmi{"librocm_smi64.so", "librocm_smi64.so.7", "librocm_smi64.so.1",
                                                      "/opt/rocm/lib/librocm_smi64.so"};
constexpr std::initializer_list<const char*> kRocmCore{"librocm-core.so", "librocm-core.so.1",
                                                       "/opt/rocm/lib/librocm-core.so"};

using Open = std::unique_ptr<GpuLibrary> (*)(const char*);

// Without a graphics device AMD's libraries print to stdout, so they are not loaded there. One that the process has
// loaded already is used in any case.
std::unique_ptr<GpuLibrary> open_first(std::initializer_list<const char*> names, Open open) {
  std::error_code ignored;
  const bool has_devices = std::filesystem::exists("/sys/class/drm", ignored);
  const auto condition = has_devices ? SharedLibrary::If::kAny : SharedLibrary::If::kAlreadyLoaded;
  for (const char* name : names) {
    if (SharedLibrary(name, condition)) return open(name);
  }
  return nullptr;
}

class JoinedGpus final : public GpuLibrary {
 public:
  explicit JoinedGpus(std::vector<std::unique_ptr<GpuLibrary>> libraries) : libraries_(std::move(libraries)) {
    std::set<std::string> ids;
    for (const auto& library : libraries_) {
      for (GpuInfo gpu : library->gpus()) {
        if (gpu.id.empty() || ids.contains(gpu.id)) gpu.id = gpu.vendor + "-" + std::to_string(gpus_.size());
        ids.insert(gpu.id);
        gpus_.push_back(std::move(gpu));
      }
    }
  }

  const std::vector<GpuInfo>& gpus() const override { return gpus_; }

  std::vector<GpuUse> read() const override {
    std::vector<GpuUse> all;
    for (const auto& library : libraries_) {
      // Exactly one value for each GPU, whatever the library returns, so that positions stay those of gpus().
      std::vector<GpuUse> uses = library->read();
      uses.resize(library->gpus().size());
      all.insert(all.end(), uses.begin(), uses.end());
    }
    return all;
  }

 private:
  const std::vector<std::unique_ptr<GpuLibrary>> libraries_;
  std::vector<GpuInfo> gpus_;
};

}  // namespace

std::unique_ptr<GpuLibrary> join_gpu_libraries(std::vector<std::unique_ptr<GpuLibrary>> libraries) {
  std::erase(libraries, nullptr);
  if (libraries.empty()) return nullptr;
  return std::make_unique<JoinedGpus>(std::move(libraries));
}

std::unique_ptr<GpuLibrary> open_gpus() {
  std::vector<std::unique_ptr<GpuLibrary>> found;
  found.push_back(open_nvml());
  // Both of AMD's libraries list the same GPUs.
  auto amd = open_first(kAmdSmi, &open_amd_smi);
  if (!amd) amd = open_first(kRocmSmi, &open_rocm_smi);
  found.push_back(std::move(amd));
  return join_gpu_libraries(std::move(found));
}

std::string rocm_version() {
  for (const char* name : kRocmCore) {
    int (*get)(unsigned*, unsigned*, unsigned*) = nullptr;
    unsigned major = 0;
    unsigned minor = 0;
    unsigned patch = 0;
    if (SharedLibrary(name).load("getROCmVersion", get) && get(&major, &minor, &patch) == 0)
      return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
  }
  return "";
}

}  // namespace tuft::telemetry::internal
