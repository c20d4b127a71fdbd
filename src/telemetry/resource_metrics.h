// The tuft.resource.* gauges. Internal to telemetry; start_resource_metrics() is in telemetry.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace tuft::telemetry::internal {

struct CpuTimes {
  uint64_t busy = 0;  // clock ticks since boot
  uint64_t total = 0;
};
// The "cpu" line of /proc/stat.
std::optional<CpuTimes> parse_cpu_times(std::string_view proc_stat);
// In percent; nothing where no tick passed.
std::optional<double> cpu_utilization(const CpuTimes& before, const CpuTimes& after);

struct MemoryUse {
  uint64_t used = 0;  // bytes
  uint64_t total = 0;
};
// Memory of the machine, or of the control group (v2 or v1) with the tightest limit that holds this process. `root`
// stands in front of /proc and /sys.
std::optional<MemoryUse> read_memory_use(const std::filesystem::path& root = "/");

// Resident bytes of this process; 0 where /proc cannot be read.
uint64_t resident_bytes();

// Takes the gauges' callbacks away.
void stop_resource_metrics();

}  // namespace tuft::telemetry::internal
