#include "telemetry/host/machine.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "telemetry/host/cgroup.h"
#include "telemetry/host/proc_text.h"

namespace tuft::telemetry::internal {
namespace {

namespace fs = std::filesystem;

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

bool is_stacked(std::string_view device) {
  static constexpr std::array<std::string_view, 6> kPrefixes{"loop", "ram", "zram", "dm-", "md", "nbd"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return device.starts_with(prefix); });
}

bool ends_in_digit(std::string_view text) {
  return !text.empty() && text.back() >= '0' && text.back() <= '9';
}

// Recognizes, for instance, "sda1" of "sda" and "nvme0n1p1" of "nvme0n1". The kernel lists partitions after their disk.
bool is_partition(std::string_view device, std::string_view disk) {
  if (disk.empty() || !device.starts_with(disk) || device.size() == disk.size()) return false;
  return ends_in_digit(device) && (!ends_in_digit(disk) || device[disk.size()] == 'p');
}

// Returns the seconds since this process started; 0 if /proc does not tell.
double process_uptime() {
  const std::string stat = read_proc("/proc/self/stat");
  // The second field is the program's name in brackets, which may contain any character; the start time is field 22.
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  const auto columns = split_columns(std::string_view(stat).substr(name_end + 1));
  constexpr size_t kStartTime = 22 - 3;
  if (columns.size() <= kStartTime) return 0;
  const auto ticks = parse_u64(columns[kStartTime]);
  timespec now{};
  if (!ticks || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  const double started = static_cast<double>(*ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return std::max(0.0, static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 - started);
}

uint64_t count_file_descriptors() {
  std::error_code problem;
  fs::directory_iterator entries("/proc/self/fd", problem);
  uint64_t count = 0;
  for (; !problem && entries != fs::directory_iterator{}; entries.increment(problem)) ++count;
  // Leaves out the descriptor that this listing uses.
  return count > 0 ? count - 1 : 0;
}

}  // namespace

std::optional<CpuTimes> parse_cpu_times(std::string_view proc_stat) {
  if (!proc_stat.starts_with("cpu ")) return std::nullopt;
  const auto columns = split_columns(proc_stat.substr(4, proc_stat.find('\n') - 4));
  // user nice system idle iowait irq softirq steal; guest times are in user already.
  CpuTimes times;
  for (size_t i = 0; i < std::min<size_t>(columns.size(), 8); ++i) {
    const auto ticks = parse_u64(columns[i]);
    if (!ticks) return std::nullopt;
    times.total += static_cast<double>(*ticks);
    if (i != 3 && i != 4) times.busy += static_cast<double>(*ticks);
  }
  return times;
}

std::optional<CpuTimes> read_cpu_times(Nanos now, const fs::path& root) {
  if (const auto quota = read_cgroup_cpu(root, std::thread::hardware_concurrency()))
    return CpuTimes{quota->used_seconds, to_seconds(now) * quota->cores, quota->cores};
  return parse_cpu_times(read_proc(root / "proc/stat"));
}

std::optional<double> cpu_utilization(const CpuTimes& before, const CpuTimes& after) {
  if (after.total <= before.total || after.busy < before.busy || after.cores != before.cores) return std::nullopt;
  return std::min(1.0, (after.busy - before.busy) / (after.total - before.total));
}

std::string read_cpu_name(const fs::path& root) {
  const std::string cpus = read_proc(root / "proc/cpuinfo");
  for (const std::string_view line : split_lines(cpus)) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string_view::npos) return std::string(line.substr(colon + 2));
  }
  return "";
}

std::optional<MemoryUse> read_memory_use(const fs::path& root) {
  const std::string meminfo = read_proc(root / "proc/meminfo");
  const auto total = proc_field(meminfo, "MemTotal:");
  const auto available = proc_field(meminfo, "MemAvailable:");
  if (!total || !available) return std::nullopt;
  if (const auto limited = read_cgroup_memory(root, *total * 1024)) return limited;
  return MemoryUse{(*total - std::min(*available, *total)) * 1024, *total * 1024};
}

std::optional<ByteTraffic> parse_disk_traffic(std::string_view proc_diskstats) {
  constexpr uint64_t kSectorBytes = 512;  // the unit of the kernel, whatever the device's sectors are
  std::optional<ByteTraffic> traffic;
  std::string_view disk;
  for (const std::string_view line : split_lines(proc_diskstats)) {
    const auto columns = split_columns(line);
    if (columns.size() < 10 || is_stacked(columns[2]) || is_partition(columns[2], disk)) continue;
    const auto read = parse_u64(columns[5]);
    const auto written = parse_u64(columns[9]);
    if (!read || !written) continue;
    disk = columns[2];
    if (!traffic) traffic.emplace();
    traffic->in += *read * kSectorBytes;
    traffic->out += *written * kSectorBytes;
  }
  return traffic;
}

std::optional<ByteTraffic> read_disk_traffic(const fs::path& root) {
  return parse_disk_traffic(read_proc(root / "proc/diskstats"));
}

std::optional<ByteTraffic> parse_network_traffic(std::string_view proc_net_dev) {
  std::optional<ByteTraffic> traffic;
  for (const std::string_view line : split_lines(proc_net_dev)) {
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const auto name = split_columns(line.substr(0, colon));
    const auto columns = split_columns(line.substr(colon + 1));
    if (name.empty() || name[0] == "lo" || columns.size() < 9) continue;
    const auto received = parse_u64(columns[0]);
    const auto sent = parse_u64(columns[8]);
    if (!received || !sent) continue;
    if (!traffic) traffic.emplace();
    traffic->in += *received;
    traffic->out += *sent;
  }
  return traffic;
}

std::optional<ByteTraffic> read_network_traffic(const fs::path& root) {
  return parse_network_traffic(read_proc(root / "proc/self/net/dev"));
}

std::optional<DiskSpace> read_disk_space(const fs::path& path) {
  std::error_code problem;
  fs::path at = fs::canonical(path, problem);
  struct statvfs space {};
  struct stat inside {};
  if (problem || ::statvfs(at.c_str(), &space) != 0 || ::stat(at.c_str(), &inside) != 0) return std::nullopt;
  // The mount point is the highest parent directory on the same device.
  for (struct stat above{}; at.has_relative_path(); at = at.parent_path()) {
    if (::stat(at.parent_path().c_str(), &above) != 0 || above.st_dev != inside.st_dev) break;
  }
  return DiskSpace{at.string(), (space.f_blocks - space.f_bfree) * space.f_frsize, space.f_bavail * space.f_frsize};
}

ProcessUse read_process_use() {
  ProcessUse use;
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    use.user_seconds = seconds(usage.ru_utime);
    use.system_seconds = seconds(usage.ru_stime);
    use.voluntary_switches = static_cast<uint64_t>(usage.ru_nvcsw);
    use.involuntary_switches = static_cast<uint64_t>(usage.ru_nivcsw);
    use.minor_faults = static_cast<uint64_t>(usage.ru_minflt);
    use.major_faults = static_cast<uint64_t>(usage.ru_majflt);
  }
  const std::string statm = read_proc("/proc/self/statm");
  const auto pages = split_columns(statm);
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  if (pages.size() >= 2) {
    use.address_space = parse_u64(pages[0]).value_or(0) * page;
    use.resident = parse_u64(pages[1]).value_or(0) * page;
  }
  use.threads = proc_field(read_proc("/proc/self/status"), "Threads:").value_or(0);
  use.file_descriptors = count_file_descriptors();
  use.uptime_seconds = process_uptime();
  return use;
}

}  // namespace tuft::telemetry::internal
