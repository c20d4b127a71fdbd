// How many cores this process may use: its affinity mask, cut by the quota of its cgroup.
#pragma once

namespace tuft::app {

int usable_cores();  // >= 1

// The threads of each of `models` workers when they share all cores evenly; >= 1.
int threads_per_worker(int cores, int models);

}  // namespace tuft::app
