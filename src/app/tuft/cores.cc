#include "app/tuft/cores.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sched.h>
#include <string>

namespace tuft::app {
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

int threads_per_worker(int cores, int models) {
  return std::max(1, cores / std::max(1, models));
}

}  // namespace tuft::app
