#include "app/tuft_worker/launcher.h"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/utf8.h"

namespace tuft::app {
namespace {

constexpr size_t kValueBytesMax = 256;

}  // namespace

std::map<std::string, std::string> launcher_attributes() {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"K8S_POD_NAME", "k8s.pod.name"},         {"K8S_NAMESPACE", "k8s.namespace.name"},
      {"K8S_NODE_NAME", "k8s.node.name"},       {"SLURM_JOB_ID", "slurm.job.id"},
      {"SLURM_ARRAY_TASK_ID", "slurm.task.id"}, {"SLURMD_NODENAME", "slurm.node.name"},
      {"RAY_NODE_ID", "ray.node.id"},           {"RAY_ACTOR_ID", "ray.actor.id"}};
  std::map<std::string, std::string> found;
  for (const auto& [variable, attribute] : kNames) {
    const char* const value = std::getenv(variable);
    if (value == nullptr) continue;
    const std::string_view text = std::string_view(value).substr(0, kValueBytesMax);
    if (!text.empty() && is_utf8(text)) found.emplace(attribute, text);
  }
  return found;
}

}  // namespace tuft::app
