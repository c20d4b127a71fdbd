// Samples the use of processors, memory and GPUs while a program runs, for benchmarks.
//
//   HardwareMonitor monitor;
//   monitor.start();
//   ...
//   const HardwareReport report = monitor.stop_and_collect();
//
// Works without init_telemetry(). GPU values come from the libraries of NVIDIA (NVML) and AMD (AMD SMI, else ROCm SMI),
// which are loaded at run time; without them they are absent. The GPUs of both vendors are in one list, NVIDIA's
// first; a position in it is the `gpu_id` of the metrics.
//
// In a control group with limits, the limits count as the machine's processors and memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace tuft::telemetry {

struct GpuSample {
  // A value that the GPU does not report is absent.
  std::optional<double> utilization_percent = {};
  std::optional<double> memory_used_bytes = {};
  std::optional<double> temperature_celsius = {};
  std::optional<double> power_watts = {};
};

struct HardwareSample {
  Nanos time = 0;                          // since the first sample
  std::optional<double> cpu_percent = {};  // since the previous sample
  std::optional<double> memory_percent = {};
  std::vector<GpuSample> gpus = {};  // by gpu_id
};

enum class MonitorStatus : uint8_t {
  kSuccess,
  kNoGpusAvailable,     // there are samples of processors and memory only
  kNoSamplesCollected,  // stopped before the first interval ended
  kFailed,              // not started, or its thread could not start; see `detail`
};
// Returns "success", "no_gpus_available", "no_samples_collected" or "failed".
std::string_view monitor_status_name(MonitorStatus status);

struct Summary {
  size_t count = 0;
  double mean = 0;
  double min = 0;
  double max = 0;
};

struct HardwareReport {
  MonitorStatus status = MonitorStatus::kFailed;
  std::string detail = {};
  Nanos interval = 0;  // between kept samples
  std::vector<HardwareSample> samples = {};

  // Statistics over all samples. GPU values are the mean utilization of all GPUs, the sum of their memory, the highest
  // temperature and the sum of their power.
  Summary gpu_utilization_percent = {};
  Summary gpu_memory_used_bytes = {};
  Summary gpu_temperature_celsius = {};
  Summary gpu_power_watts = {};
  Summary cpu_percent = {};
  Summary memory_percent = {};
};

// Thread-safe. The destructor ends the thread.
class HardwareMonitor {
 public:
  // Requires `interval` >= 1 ms.
  explicit HardwareMonitor(Nanos interval = 100 * kMillisecond);
  ~HardwareMonitor();
  HardwareMonitor(const HardwareMonitor&) = delete;
  HardwareMonitor& operator=(const HardwareMonitor&) = delete;

  // Starts sampling and forgets earlier samples; does nothing while it runs.
  Status start();
  // Returns the number of samples kept so far. At most 36,000 are kept, one hour at the default interval; then every
  // second sample is dropped and the interval doubles, so that the samples cover the whole run.
  size_t sample_count() const;
  HardwareReport stop_and_collect();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct GpuDescription {
  std::string name = {};
  std::string id = {};  // unique on the machine, and the same after a restart
  std::string vendor = {};
  uint64_t memory_total = 0;  // bytes
  std::string driver_version = {};
};

// A description of the machine and the program. A text that is not known is empty.
struct HardwareInfo {
  std::string gpu_name = {};  // of the first GPU
  int gpu_count = 0;
  uint64_t gpu_memory_total = 0;  // bytes, of the first GPU
  std::string gpu_driver_version = {};
  std::vector<GpuDescription> gpus = {};  // by gpu_id
  std::string cuda_version = {};          // the newest that NVIDIA's driver supports
  std::string rocm_version = {};          // of the installed ROCm
  std::string cpu_name = {};
  double cpu_count = 0;  // may be fractional under a quota
  uint64_t memory_total = 0;
  std::string kernel_version = {};
  std::string compiler_version = {};
  std::string torch_version = {};  // the libtorch that this program was built with
  std::string tuft_version = {};
};
HardwareInfo hardware_info();

// Returns both as one JSON object, with or without the single samples.
std::string hardware_json(const HardwareInfo& info, const HardwareReport& report, bool with_samples);

}  // namespace tuft::telemetry
