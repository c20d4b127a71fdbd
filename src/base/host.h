// What the process sees of its machine.
#pragma once

#include <string>

namespace tuft {

// Returns the cores that this process may use, at least 1: its affinity mask, limited by the quota of its cgroup.
int usable_cores();

// Returns the name of the machine, or of the container; empty if it has none.
std::string host_name();

}  // namespace tuft
