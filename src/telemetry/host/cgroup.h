// Reads the limits that control groups, v2 or v1, set for this process. Internal to telemetry.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "telemetry/host/machine.h"

namespace tuft::telemetry::internal {

// Returns the memory use of the group with the tightest limit below `machine_total` bytes.
std::optional<MemoryUse> read_cgroup_memory(const std::filesystem::path& root, uint64_t machine_total);

struct CpuQuota {
  double cores = 0;
  double used_seconds = 0;
};
// Returns the quota of the group with the smallest one, if it is below `machine_cores`.
std::optional<CpuQuota> read_cgroup_cpu(const std::filesystem::path& root, double machine_cores);

}  // namespace tuft::telemetry::internal
