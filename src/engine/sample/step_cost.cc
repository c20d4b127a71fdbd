#include "engine/sample/step_cost.h"

#include <algorithm>
#include <limits>

namespace tuft::engine {
namespace {

constexpr double kKept = 1 - 1.0 / 64;

// Below this part of the squared mean, the variance of the sizes says too little about the slope.
constexpr double kVarianceMin = 0.01;

}  // namespace

void StepCost::stepped(size_t tokens, Nanos duration) {
  const auto size = static_cast<double>(tokens);
  const auto time = static_cast<double>(duration);
  steps_ = kKept * steps_ + 1;
  tokens_ = kKept * tokens_ + size;
  tokens_squared_ = kKept * tokens_squared_ + size * size;
  time_ = kKept * time_ + time;
  tokens_by_time_ = kKept * tokens_by_time_ + size * time;

  const double spread = steps_ * tokens_squared_ - tokens_ * tokens_;  // variance * steps_^2
  if (spread <= kVarianceMin * tokens_ * tokens_) return;
  const double per_token = (steps_ * tokens_by_time_ - tokens_ * time_) / spread;
  const double fixed = (time_ - per_token * tokens_) / steps_;
  fixed_in_tokens_ = per_token > 0 ? std::max(0.0, fixed / per_token) : std::numeric_limits<double>::infinity();
}

}  // namespace tuft::engine
