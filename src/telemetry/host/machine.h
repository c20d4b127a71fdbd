// Reads /proc, /sys and statvfs: the use of the machine and of this process. Internal to telemetry.
//
// If a control group (v2 or v1) limits the process, its limits count as the machine's. `root` precedes /proc and /sys
// in paths. A value that cannot be read is absent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace tuft::telemetry::internal {

// Used and available processor time, in the same unit. Neither decreases.
struct CpuTimes {
  double busy = 0;
  double total = 0;
  double cores = 0;  // the quota; 0: all cores of the machine
};
// Parses the "cpu" line of /proc/stat; clock ticks.
std::optional<CpuTimes> parse_cpu_times(std::string_view proc_stat);
// Returns the times of the control group with the smallest quota, in seconds (`busy` since the group's start, `total`
// since the clock's zero), else those of the machine. `now` is a Clock::monotonic() time.
std::optional<CpuTimes> read_cpu_times(Nanos now, const std::filesystem::path& root = "/");
// Returns 0 .. 1; nullopt if no time passed or the quota changed.
std::optional<double> cpu_utilization(const CpuTimes& before, const CpuTimes& after);

// Returns the name of the first processor; "" where the kernel does not tell it, as on most 64-bit ARM machines.
std::string read_cpu_name(const std::filesystem::path& root = "/");

struct MemoryUse {
  uint64_t used = 0;  // bytes
  uint64_t total = 0;
};
// Memory that the kernel would reclaim under pressure does not count as used.
std::optional<MemoryUse> read_memory_use(const std::filesystem::path& root = "/");

struct ByteTraffic {
  uint64_t in = 0;  // bytes read or received
  uint64_t out = 0;
};
// Returns the sum over whole disks. Stacked devices (loop, ram, dm, md) are left out because they would count twice.
std::optional<ByteTraffic> parse_disk_traffic(std::string_view proc_diskstats);
std::optional<ByteTraffic> read_disk_traffic(const std::filesystem::path& root = "/");
// Returns the sum over all interfaces except the loopback.
std::optional<ByteTraffic> parse_network_traffic(std::string_view proc_net_dev);
std::optional<ByteTraffic> read_network_traffic(const std::filesystem::path& root = "/");

struct DiskSpace {
  std::string mount_point;
  uint64_t used = 0;  // bytes
  uint64_t free = 0;  // available to users other than root
};
// Returns the space of the file system that holds `path`. May block on a network file system.
std::optional<DiskSpace> read_disk_space(const std::filesystem::path& path);

struct ProcessUse {
  double user_seconds = 0;
  double system_seconds = 0;
  uint64_t resident = 0;  // bytes
  uint64_t address_space = 0;
  uint64_t threads = 0;
  uint64_t file_descriptors = 0;
  uint64_t voluntary_switches = 0;
  uint64_t involuntary_switches = 0;
  uint64_t minor_faults = 0;
  uint64_t major_faults = 0;
  double uptime_seconds = 0;
};
ProcessUse read_process_use();

}  // namespace tuft::telemetry::internal
