// What /proc, /sys and statvfs say of this machine and this process. Internal to telemetry.
//
// Where a control group (v2 or v1) limits the process, the limit is the machine. `root` stands in front of /proc and
// /sys. What cannot be read is absent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace tuft::telemetry::internal {

// Processor time that was used and that there was to use, in any one unit; both only grow.
struct CpuTimes {
  double busy = 0;
  double total = 0;
  double cores = 0;  // of the quota that counts; 0: all of the machine's
};
// The "cpu" line of /proc/stat, in clock ticks.
std::optional<CpuTimes> parse_cpu_times(std::string_view proc_stat);
// Those of the control group with the smallest quota, in seconds since its start and since the clock's zero; else those
// of the machine. `now`: Clock::monotonic().
std::optional<CpuTimes> read_cpu_times(Nanos now, const std::filesystem::path& root = "/");
// 0 .. 1; nothing where no time passed or the quota changed.
std::optional<double> cpu_utilization(const CpuTimes& before, const CpuTimes& after);

struct MemoryUse {
  uint64_t used = 0;  // bytes
  uint64_t total = 0;
};
// What the kernel would give back under pressure does not count as used.
std::optional<MemoryUse> read_memory_use(const std::filesystem::path& root = "/");

struct ByteTraffic {
  uint64_t in = 0;  // read, received
  uint64_t out = 0;
};
// Whole disks; what is stacked on others (loop, ram, dm, md) would count twice.
std::optional<ByteTraffic> parse_disk_traffic(std::string_view proc_diskstats);
std::optional<ByteTraffic> read_disk_traffic(const std::filesystem::path& root = "/");
// All interfaces but the loopback.
std::optional<ByteTraffic> parse_network_traffic(std::string_view proc_net_dev);
std::optional<ByteTraffic> read_network_traffic(const std::filesystem::path& root = "/");

struct DiskSpace {
  std::string mount_point;
  uint64_t used = 0;  // bytes
  uint64_t free = 0;  // for those who are not root
};
// Of the file system that holds `path`. Blocks as long as that does.
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
