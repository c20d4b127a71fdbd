// The limits that control groups, v2 or v1, put on this process. Internal to telemetry.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "telemetry/machine.h"

namespace tuft::telemetry::internal {

// Of the group with the tightest limit below `machine_total` bytes.
std::optional<MemoryUse> read_cgroup_memory(const std::filesystem::path& root, uint64_t machine_total);

struct CpuQuota {
  double cores = 0;
  double used_seconds = 0;
};
// Of the group with the smallest quota, where that is less than `machine_cores`.
std::optional<CpuQuota> read_cgroup_cpu(const std::filesystem::path& root, double machine_cores);

}  // namespace tuft::telemetry::internal
