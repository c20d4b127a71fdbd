// What placed this process: a pod of Kubernetes, a job of Slurm, a node of Ray.
#pragma once

#include <map>
#include <string>

namespace tuft::app {

// Returns the launcher's ids as resource attributes, such as k8s.pod.name, from the environment variables that Slurm
// sets and that what starts the worker may set. Values that are not UTF-8 are left out.
std::map<std::string, std::string> launcher_attributes();

}  // namespace tuft::app
