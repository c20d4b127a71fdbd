// ROCm SMI, the predecessor of AMD SMI. All its functions take and return plain numbers and texts.
#include <array>
#include <cstdint>
#include <cstdio>

#include "telemetry/host/gpu_library.h"
#include "telemetry/host/shared_library.h"

namespace tuft::telemetry::internal {
namespace {

// What is needed of rocm_smi.h. Enumerations are passed as int, which has their size.
constexpr int kRocmSuccess = 0;
constexpr int kRocmVideoMemory = 0;
constexpr uint32_t kRocmEdge = 0;
constexpr uint32_t kJunction = 1;
constexpr int kRocmCurrent = 0;
constexpr int kDriver = 0;
constexpr size_t kRocmTextBytes = 256;

struct RocmFunctions {
  int (*init)(uint64_t) = nullptr;
  int (*count_gpus)(uint32_t*) = nullptr;
  int (*get_utilization)(uint32_t, uint32_t*) = nullptr;  // %
  int (*get_memory_used)(uint32_t, int, uint64_t*) = nullptr;
  int (*get_memory_total)(uint32_t, int, uint64_t*) = nullptr;
  // Null if the library lacks them.
  int (*get_power)(uint32_t, uint64_t*, int*) = nullptr;              // uW; since ROCm 6.0
  int (*get_average_power)(uint32_t, uint32_t, uint64_t*) = nullptr;  // uW
  int (*get_energy)(uint32_t, uint64_t*, float*, uint64_t*) = nullptr;
  int (*get_temperature)(uint32_t, uint32_t, int, int64_t*) = nullptr;  // thousandths of Cel
  int (*get_name)(uint32_t, char*, size_t) = nullptr;
  int (*get_unique_id)(uint32_t, uint64_t*) = nullptr;
  int (*get_version)(int, char*, uint32_t) = nullptr;
};

bool load_all(const SharedLibrary& library, RocmFunctions& rocm) {
  library.load("rsmi_dev_power_get", rocm.get_power);
  library.load("rsmi_dev_power_ave_get", rocm.get_average_power);
  library.load("rsmi_dev_energy_count_get", rocm.get_energy);
  library.load("rsmi_dev_temp_metric_get", rocm.get_temperature);
  library.load("rsmi_dev_name_get", rocm.get_name);
  library.load("rsmi_dev_unique_id_get", rocm.get_unique_id);
  library.load("rsmi_version_str_get", rocm.get_version);
  return library.load("rsmi_init", rocm.init) && library.load("rsmi_num_monitor_devices", rocm.count_gpus) &&
         library.load("rsmi_dev_busy_percent_get", rocm.get_utilization) &&
         library.load("rsmi_dev_memory_usage_get", rocm.get_memory_used) &&
         library.load("rsmi_dev_memory_total_get", rocm.get_memory_total);
}

class RocmSmi final : public GpuLibrary {
 public:
  explicit RocmSmi(const RocmFunctions& rocm) : rocm_(rocm) {
    uint32_t count = 0;
    if (rocm_.count_gpus(&count) != kRocmSuccess) return;
    const std::string driver = driver_version();
    const std::string version = rocm_version();
    for (uint32_t i = 0; i < count; ++i)
      gpus_.push_back({.name = name(i),
                       .id = unique_id(i),
                       .vendor = "AMD",
                       .driver_version = driver,
                       .runtime = "ROCm",
                       .runtime_version = version});
  }

  const std::vector<GpuInfo>& gpus() const override { return gpus_; }

  std::vector<GpuUse> read() const override {
    std::vector<GpuUse> out;
    for (uint32_t i = 0; i < gpus_.size(); ++i) {
      GpuUse& use = out.emplace_back();
      uint32_t percent = 0;
      if (rocm_.get_utilization(i, &percent) == kRocmSuccess && percent <= 100) use.utilization = percent / 100.0;
      uint64_t bytes = 0;
      if (rocm_.get_memory_used(i, kRocmVideoMemory, &bytes) == kRocmSuccess)
        use.memory_used = static_cast<double>(bytes);
      if (rocm_.get_memory_total(i, kRocmVideoMemory, &bytes) == kRocmSuccess)
        use.memory_total = static_cast<double>(bytes);
      use.power_watts = power(i);
      use.temperature_celsius = temperature(i);
      uint64_t count = 0;
      float microjoules = 0;
      uint64_t time = 0;
      if (rocm_.get_energy != nullptr && rocm_.get_energy(i, &count, &microjoules, &time) == kRocmSuccess)
        use.energy_joules = static_cast<double>(count) * static_cast<double>(microjoules) * 1e-6;
    }
    return out;
  }

 private:
  std::string name(uint32_t gpu) const {
    std::array<char, kRocmTextBytes> text{};
    if (rocm_.get_name == nullptr || rocm_.get_name(gpu, text.data(), text.size() - 1) != kRocmSuccess) return "";
    return text.data();
  }

  // Returns the id in the form that HIP writes.
  std::string unique_id(uint32_t gpu) const {
    uint64_t id = 0;
    if (rocm_.get_unique_id == nullptr || rocm_.get_unique_id(gpu, &id) != kRocmSuccess || id == 0) return "";
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "GPU-%016llx", static_cast<unsigned long long>(id));
    return text.data();
  }

  std::string driver_version() const {
    std::array<char, kRocmTextBytes> text{};
    if (rocm_.get_version == nullptr || rocm_.get_version(kDriver, text.data(), kRocmTextBytes - 1) != kRocmSuccess)
      return "";
    return text.data();
  }

  std::optional<double> power(uint32_t gpu) const {
    uint64_t microwatts = 0;
    int type = 0;
    const bool known =
        (rocm_.get_power != nullptr && rocm_.get_power(gpu, &microwatts, &type) == kRocmSuccess) ||
        (rocm_.get_average_power != nullptr && rocm_.get_average_power(gpu, 0, &microwatts) == kRocmSuccess);
    if (!known) return std::nullopt;
    return static_cast<double>(microwatts) * 1e-6;
  }

  // GPUs for servers report the hottest place only.
  std::optional<double> temperature(uint32_t gpu) const {
    for (const uint32_t sensor : {kRocmEdge, kJunction}) {
      int64_t thousandths = 0;
      if (rocm_.get_temperature != nullptr &&
          rocm_.get_temperature(gpu, sensor, kRocmCurrent, &thousandths) == kRocmSuccess)
        return static_cast<double>(thousandths) * 1e-3;
    }
    return std::nullopt;
  }

  const RocmFunctions rocm_;
  std::vector<GpuInfo> gpus_;
};

}  // namespace

std::unique_ptr<GpuLibrary> open_rocm_smi(const char* library) {
  RocmFunctions functions;
  if (!load_all(SharedLibrary(library), functions) || functions.init(0) != kRocmSuccess) return nullptr;
  auto rocm = std::make_unique<RocmSmi>(functions);
  if (rocm->gpus().empty()) return nullptr;
  return rocm;
}

}  // namespace tuft::telemetry::internal
