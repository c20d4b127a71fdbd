#include "control/sampling/sampler_tombstones.h"

#include <utility>

namespace tuft::control {

void SamplerTombstones::note(const SamplerId& sampler, const UserId& user, std::string why) {
  MutexLock lock(mutex_);
  const bool is_new = gone_.insert_or_assign(sampler, Gone{user, std::move(why)}).second;
  if (!is_new) return;
  order_.push_back(sampler);
  if (order_.size() <= kTombstonesMax) return;
  gone_.erase(order_.front());
  order_.pop_front();
}

std::string SamplerTombstones::why(const SamplerId& sampler, const UserId& user) const {
  MutexLock lock(mutex_);
  const auto found = gone_.find(sampler);
  return found == gone_.end() || found->second.user != user ? std::string() : found->second.why;
}

}  // namespace tuft::control
