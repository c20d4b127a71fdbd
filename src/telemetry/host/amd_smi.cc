// AMD's System Management Interface (AMD SMI).
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "telemetry/host/gpu_library.h"
#include "telemetry/host/shared_library.h"

namespace tuft::telemetry::internal {
namespace {

// What is needed of amdsmi.h. Enumerations are passed as int, which has their size.
using Handle = void*;
constexpr int kAmdSuccess = 0;
constexpr uint64_t kGpusOnly = 1 << 1;
constexpr int kAmdVideoMemory = 0;
constexpr int kAmdEdge = 0;
constexpr int kHotspot = 1;
constexpr int kAmdCurrent = 0;
// The first number of the version. Until 24 it was the year; before 24 the structures had other first members.
constexpr uint32_t kOldestVersion = 24;
// From this version on, 8 bytes stand before the power of the socket.
constexpr uint32_t kPowerMoved = 25;
// The library's mark for a value that the GPU does not report is all ones, in 16 or in 32 bits.
constexpr uint32_t kNotReported = 0xffff;
constexpr uint32_t kHandlesMax = 1024;

// Versions of the library differ in the length of structures, but not in their first members. Every structure fits
// in this one several times.
class Structure {
 public:
  char* data() { return bytes_.data(); }

  uint32_t number(size_t offset) const {
    uint32_t value = 0;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  // Returns the text at the start, which has 64 bytes in the oldest version and 256 in others.
  std::string text() const { return {bytes_.data(), ::strnlen(bytes_.data(), 255)}; }

 private:
  alignas(8) std::array<char, 8192> bytes_{};
};

struct AmdFunctions {
  int (*init)(uint64_t) = nullptr;
  int (*get_version)(void*) = nullptr;
  int (*get_sockets)(uint32_t*, Handle*) = nullptr;
  int (*get_gpus)(Handle, uint32_t*, Handle*) = nullptr;
  int (*get_activity)(Handle, void*) = nullptr;
  int (*get_memory_used)(Handle, int, uint64_t*) = nullptr;
  int (*get_memory_total)(Handle, int, uint64_t*) = nullptr;
  // Null if the library lacks them.
  int (*get_temperature)(Handle, int, int, int64_t*) = nullptr;  // Cel, although the header says thousandths
  int (*get_power)(Handle, void*) = nullptr;                     // W
  int (*get_energy)(Handle, uint64_t*, float*, uint64_t*) = nullptr;
  int (*get_asic)(Handle, void*) = nullptr;
  int (*get_uuid)(Handle, unsigned*, char*) = nullptr;
  int (*get_driver)(Handle, void*) = nullptr;
};

bool load_all(const SharedLibrary& library, AmdFunctions& amd) {
  library.load("amdsmi_get_temp_metric", amd.get_temperature);
  library.load("amdsmi_get_power_info", amd.get_power);
  library.load("amdsmi_get_energy_count", amd.get_energy);
  library.load("amdsmi_get_gpu_asic_info", amd.get_asic);
  library.load("amdsmi_get_gpu_device_uuid", amd.get_uuid);
  library.load("amdsmi_get_gpu_driver_info", amd.get_driver);
  return library.load("amdsmi_init", amd.init) && library.load("amdsmi_get_lib_version", amd.get_version) &&
         library.load("amdsmi_get_socket_handles", amd.get_sockets) &&
         library.load("amdsmi_get_processor_handles", amd.get_gpus) &&
         library.load("amdsmi_get_gpu_activity", amd.get_activity) &&
         library.load("amdsmi_get_gpu_memory_usage", amd.get_memory_used) &&
         library.load("amdsmi_get_gpu_memory_total", amd.get_memory_total);
}

std::string text_of(int (*get)(Handle, void*), Handle gpu) {
  Structure answer;
  if (get == nullptr || get(gpu, answer.data()) != kAmdSuccess) return "";
  return answer.text();
}

class AmdSmi final : public GpuLibrary {
 public:
  AmdSmi(const AmdFunctions& amd, uint32_t version) : amd_(amd), version_(version) {
    const std::string rocm = rocm_version();
    for (const Handle socket : handles([this](uint32_t* count, Handle* out) { return amd_.get_sockets(count, out); })) {
      for (const Handle gpu :
           handles([&](uint32_t* count, Handle* out) { return amd_.get_gpus(socket, count, out); })) {
        handles_.push_back(gpu);
        gpus_.push_back({.name = text_of(amd_.get_asic, gpu),
                         .id = uuid(gpu),
                         .vendor = "AMD",
                         .driver_version = text_of(amd_.get_driver, gpu),
                         .runtime = "ROCm",
                         .runtime_version = rocm});
      }
    }
  }

  const std::vector<GpuInfo>& gpus() const override { return gpus_; }

  std::vector<GpuUse> read() const override {
    std::vector<GpuUse> out;
    for (const Handle gpu : handles_) {
      GpuUse& use = out.emplace_back();
      Structure activity;
      if (amd_.get_activity(gpu, activity.data()) == kAmdSuccess && activity.number(0) <= 100)
        use.utilization = activity.number(0) / 100.0;
      uint64_t bytes = 0;
      if (amd_.get_memory_used(gpu, kAmdVideoMemory, &bytes) == kAmdSuccess)
        use.memory_used = static_cast<double>(bytes);
      if (amd_.get_memory_total(gpu, kAmdVideoMemory, &bytes) == kAmdSuccess)
        use.memory_total = static_cast<double>(bytes);
      use.temperature_celsius = temperature(gpu);
      use.power_watts = power(gpu);
      uint64_t count = 0;
      float microjoules = 0;
      uint64_t time = 0;
      if (amd_.get_energy != nullptr && amd_.get_energy(gpu, &count, &microjoules, &time) == kAmdSuccess)
        use.energy_joules = static_cast<double>(count) * static_cast<double>(microjoules) * 1e-6;
    }
    return out;
  }

 private:
  // Asks for the number of handles, then for them.
  template <typename Get>
  static std::vector<Handle> handles(Get get) {
    uint32_t count = 0;
    if (get(&count, nullptr) != kAmdSuccess) return {};
    count = std::min(count, kHandlesMax);
    std::vector<Handle> out(count);
    if (count == 0 || get(&count, out.data()) != kAmdSuccess) return {};
    out.resize(std::min<size_t>(count, out.size()));
    return out;
  }

  std::string uuid(Handle gpu) const {
    std::array<char, 256> text{};
    auto length = static_cast<unsigned>(text.size() - 1);
    if (amd_.get_uuid == nullptr || amd_.get_uuid(gpu, &length, text.data()) != kAmdSuccess) return "";
    return text.data();
  }

  // GPUs for servers report the hottest place only.
  std::optional<double> temperature(Handle gpu) const {
    for (const int sensor : {kAmdEdge, kHotspot}) {
      int64_t celsius = 0;
      if (amd_.get_temperature != nullptr && amd_.get_temperature(gpu, sensor, kAmdCurrent, &celsius) == kAmdSuccess)
        return static_cast<double>(celsius);
    }
    return std::nullopt;
  }

  // Newer GPUs report the power now, others an average.
  std::optional<double> power(Handle gpu) const {
    Structure answer;
    if (amd_.get_power == nullptr || amd_.get_power(gpu, answer.data()) != kAmdSuccess) return std::nullopt;
    const size_t now = version_ >= kPowerMoved ? 8 : 0;
    for (const size_t offset : {now, now + 4}) {
      const uint32_t watts = answer.number(offset);
      if (watts != 0 && watts < kNotReported) return watts;
    }
    return std::nullopt;
  }

  const AmdFunctions amd_;
  const uint32_t version_;
  std::vector<Handle> handles_;
  std::vector<GpuInfo> gpus_;
};

}  // namespace

std::unique_ptr<GpuLibrary> open_amd_smi(const char* library) {
  AmdFunctions functions;
  Structure version;
  // The library does not even tell its version before init().
  if (!load_all(SharedLibrary(library), functions) || functions.init(kGpusOnly) != kAmdSuccess ||
      functions.get_version(version.data()) != kAmdSuccess || version.number(0) < kOldestVersion)
    return nullptr;
  auto amd = std::make_unique<AmdSmi>(functions, version.number(0));
  if (amd->gpus().empty()) return nullptr;
  return amd;
}

}  // namespace tuft::telemetry::internal
