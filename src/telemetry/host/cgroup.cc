#include "telemetry/host/cgroup.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry/host/proc_text.h"

namespace tuft::telemetry::internal {
namespace {

namespace fs = std::filesystem;

// Returns the path of this process' group: "0::/path" (v2), or "9:cpu,cpuacct:/path" for a controller of v1.
std::string group_path(const fs::path& root, std::string_view controller) {
  const std::string text = read_proc(root / "proc/self/cgroup");
  for (const std::string_view line : split_lines(text)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    std::string controllers(",");
    controllers.append(line.substr(first + 1, second - first - 1)).append(",");
    if (controllers.find("," + std::string(controller) + ",") != std::string::npos)
      return std::string(line.substr(second + 1));
  }
  return "/";
}

// Lists the group of this process and its parents up to the root, because each may set a limit. Inside a container the
// path may name groups that only the host sees; the mount then shows the container's own group as its root.
std::vector<fs::path> groups(const fs::path& root, const fs::path& mount, std::string_view controller) {
  std::vector<fs::path> out;
  fs::path path = fs::path(group_path(root, controller)).relative_path();
  for (;; path = path.parent_path()) {
    out.push_back(root / mount / path);
    if (path.empty()) return out;
  }
}

struct MemoryFiles {
  const char* mount;
  const char* controller;
  const char* limit;
  const char* used;
  const char* cache_key;
};

std::optional<MemoryUse> read_memory(const fs::path& root, const MemoryFiles& files, uint64_t machine_total) {
  std::optional<MemoryUse> tightest;
  for (const fs::path& group : groups(root, files.mount, files.controller)) {
    const auto limit = parse_u64(read_proc(group / files.limit));
    const auto used = parse_u64(read_proc(group / files.used));
    if (!limit || !used || *limit >= machine_total || (tightest && *limit >= tightest->total)) continue;
    const uint64_t cache = proc_field(read_proc(group / "memory.stat"), files.cache_key).value_or(0);
    tightest = MemoryUse{*used - std::min(*used, cache), *limit};
  }
  return tightest;
}

void keep_smaller(std::optional<CpuQuota>& smallest, std::optional<double> cores, std::optional<double> used_seconds,
                  double machine_cores) {
  if (!cores || !used_seconds || *cores <= 0 || *cores >= machine_cores) return;
  if (!smallest || *cores < smallest->cores) smallest = CpuQuota{*cores, *used_seconds};
}

std::optional<double> scaled(std::optional<uint64_t> value, double unit) {
  if (!value) return std::nullopt;
  return static_cast<double>(*value) * unit;
}

std::optional<double> ratio(std::optional<uint64_t> quota, std::optional<uint64_t> period) {
  if (!quota || !period || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

}  // namespace

std::optional<MemoryUse> read_cgroup_memory(const fs::path& root, uint64_t machine_total) {
  static constexpr MemoryFiles kVersion2{"sys/fs/cgroup", "", "memory.max", "memory.current", "inactive_file "};
  static constexpr MemoryFiles kVersion1{"sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes",
                                         "memory.usage_in_bytes", "total_inactive_file "};
  if (auto limited = read_memory(root, kVersion2, machine_total)) return limited;
  return read_memory(root, kVersion1, machine_total);
}

std::optional<CpuQuota> read_cgroup_cpu(const fs::path& root, double machine_cores) {
  std::optional<CpuQuota> smallest;
  for (const fs::path& group : groups(root, "sys/fs/cgroup", "")) {
    const std::string limit = read_proc(group / "cpu.max");  // "200000 100000", or "max 100000"
    const size_t space = std::min(limit.find(' '), limit.size());
    keep_smaller(smallest, ratio(parse_u64(limit), parse_u64(std::string_view(limit).substr(space))),
                 scaled(proc_field(read_proc(group / "cpu.stat"), "usage_usec "), 1e-6), machine_cores);
  }
  if (smallest) return smallest;
  const auto limits = groups(root, "sys/fs/cgroup/cpu", "cpu");
  const auto uses = groups(root, "sys/fs/cgroup/cpuacct", "cpuacct");
  // Both controllers usually share a hierarchy. If they do not, no group has both a quota and a usage value.
  for (size_t i = 0; i < std::min(limits.size(), uses.size()); ++i) {
    keep_smaller(smallest,
                 ratio(parse_u64(read_proc(limits[i] / "cpu.cfs_quota_us")),
                       parse_u64(read_proc(limits[i] / "cpu.cfs_period_us"))),
                 scaled(parse_u64(read_proc(uses[i] / "cpuacct.usage")), 1e-9), machine_cores);
  }
  return smallest;
}

}  // namespace tuft::telemetry::internal
