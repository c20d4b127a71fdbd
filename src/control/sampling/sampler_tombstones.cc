#include "control/sampling/sampler_tombstones.h"

#include <utility>

namespace tuft::control {

void SamplerTombstones::note(const SamplerId& sampler, const UserId& user, std::string why) {
  MutexLock lock(mutex_);
  gone_.note(sampler, user, std::move(why));
}

std::string SamplerTombstones::why(const SamplerId& sampler, const UserId& user) const {
  MutexLock lock(mutex_);
  const std::string* why = gone_.find(sampler, user);
  return why == nullptr ? std::string() : *why;
}

}  // namespace tuft::control
