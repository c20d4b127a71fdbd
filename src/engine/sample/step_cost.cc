#include "engine/sample/step_cost.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace tuft::engine {
namespace {

// A step that was interrupted may take very long; it counts as no more than this many times the mean.
constexpr double kTimesMeanMax = 2;

// Below this part of its maximum, the determinant of the fit says that the sizes are too close to each other.
constexpr double kDeterminantMin = 0.01;

}  // namespace

void StepCost::stepped(size_t tokens, Nanos duration) {
  if (tokens == 0 || duration <= 0) return;
  const auto size = static_cast<size_t>(std::bit_width(tokens)) - 1;
  Steps& steps = sizes_[std::min(size, kSizes - 1)];
  auto time = static_cast<double>(duration);
  if (!steps.time.is_empty()) time = std::min(time, kTimesMeanMax * steps.time.mean());
  steps.tokens.add(static_cast<double>(tokens));
  steps.time.add(time);
  fit();
}

// Minimises the sum of ((fixed + per_token * tokens) / time - 1)^2 over the means.
void StepCost::fit() {
  double x = 0;  // sums of 1 / time, of tokens / time, and of their products
  double y = 0;
  double xx = 0;
  double xy = 0;
  double yy = 0;
  for (const Steps& steps : sizes_) {
    if (steps.time.is_empty()) continue;
    const double one = 1 / steps.time.mean();
    const double many = steps.tokens.mean() / steps.time.mean();
    x += one;
    y += many;
    xx += one * one;
    xy += one * many;
    yy += many * many;
  }
  const double determinant = xx * yy - xy * xy;
  if (determinant <= kDeterminantMin * xx * yy) return;
  const double fixed = (x * yy - y * xy) / determinant;
  const double per_token = (y * xx - x * xy) / determinant;
  fixed_in_tokens_ = per_token > 0 ? std::max(0.0, fixed / per_token) : std::numeric_limits<double>::infinity();
}

}  // namespace tuft::engine
