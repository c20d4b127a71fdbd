// Samples of processors, memory and GPUs while something runs, as benches want them.
//
//   HardwareMonitor monitor;
//   monitor.start();
//   ...
//   const HardwareReport report = monitor.stop_and_collect();
//
// It needs no telemetry. GPUs are seen through NVML, loaded at run time; without one the rest is sampled all the same.
// Where a control group limits the process, processors and memory are those that it grants.
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
  // What the GPU does not tell is absent.
  std::optional<double> utilization_percent = {};
  std::optional<double> memory_used_bytes = {};
  std::optional<double> temperature_celsius = {};
  std::optional<double> power_watts = {};
};

struct HardwareSample {
  Nanos time = 0;                          // since the first sample
  std::optional<double> cpu_percent = {};  // since the sample before
  std::optional<double> memory_percent = {};
  std::vector<GpuSample> gpus = {};  // in NVML's order
};

enum class MonitorStatus : uint8_t {
  kSuccess,
  kNoGpusAvailable,     // there are samples, but of the processors and memory only
  kNoSamplesCollected,  // it was stopped before the first interval ended
  kFailed,              // never started, or its thread could not be; see `detail`
};
// "success", "no_gpus_available", "no_samples_collected", "failed".
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
  Nanos interval = 0;  // between the samples that are kept
  std::vector<HardwareSample> samples = {};

  // Over all samples, GPUs together: their mean utilisation, the sum of their memory, the hottest, the sum of the
  // power.
  Summary gpu_utilization_percent = {};
  Summary gpu_memory_used_bytes = {};
  Summary gpu_temperature_celsius = {};
  Summary gpu_power_watts = {};
  Summary cpu_percent = {};
  Summary memory_percent = {};
};

// Thread-safe. Ends its thread when destroyed.
class HardwareMonitor {
 public:
  // At least 1 ms.
  explicit HardwareMonitor(Nanos interval = 100 * kMillisecond);
  ~HardwareMonitor();
  HardwareMonitor(const HardwareMonitor&) = delete;
  HardwareMonitor& operator=(const HardwareMonitor&) = delete;

  // Begins anew, without the samples of before; nothing happens while it runs.
  Status start();
  // Samples that are kept so far. At most 36,000, an hour at the default interval: then every second one is dropped and
  // the interval doubles, so that the whole run stays covered.
  size_t sample_count() const;
  HardwareReport stop_and_collect();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What the machine is.
struct HardwareInfo {
  std::string gpu_name = {};  // of the first; "" without NVML
  int gpu_count = 0;
  uint64_t gpu_memory_total = 0;  // bytes, of the first
  std::string gpu_driver_version = {};
  std::string cpu_name = {};
  double cpu_count = 0;  // of a quota: fractions too
  uint64_t memory_total = 0;
  std::string kernel_version = {};
  std::string compiler_version = {};
  std::string tuft_version = {};
};
HardwareInfo hardware_info();

// Both as one JSON object, with or without the samples themselves.
std::string hardware_json(const HardwareInfo& info, const HardwareReport& report, bool with_samples);

}  // namespace tuft::telemetry
