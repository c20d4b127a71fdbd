#include "base/host.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <sched.h>
#include <unistd.h>

namespace tuft {
namespace {

// Reads cpu.max of cgroup v2: "max 100000" or "<quota> <period>".
int cgroup_cores(int otherwise) {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return otherwise;
  try {
    return std::max(1, static_cast<int>(std::lround(std::stod(quota) / period)));
  } catch (const std::exception&) {
    return otherwise;
  }
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int by_affinity = ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
  return std::min(by_affinity, cgroup_cores(by_affinity));
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string();
}

}  // namespace tuft
