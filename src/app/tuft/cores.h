// The cores that this process may use: its affinity mask, limited by the quota of its cgroup.
#pragma once

namespace tuft::app {

int usable_cores();  // >= 1

// Returns the threads per worker if `models` workers share `cores` evenly; >= 1.
int threads_per_worker(int cores, int models);

}  // namespace tuft::app
