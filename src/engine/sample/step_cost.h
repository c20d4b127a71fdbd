// StepCost: how the time of a step depends on its tokens, where one with a scored row, or with many positions to attend
// to, counts as several (Schedule). It fits `fixed + per_token * tokens` to the newest steps (least squares, in which
// the weight of a step falls by 1/64 with each step after it). Confined to the engine thread.
#pragma once

#include <cstddef>
#include <optional>

#include "base/clock.h"

namespace tuft::engine {

class StepCost {
 public:
  void stepped(size_t tokens, Nanos duration);

  // Returns fixed / per_token: how many tokens take as long as the part of a step that does not depend on its tokens.
  // At least 0; infinite where tokens cost nothing. Absent until there were steps of different sizes.
  std::optional<double> fixed_in_tokens() const { return fixed_in_tokens_; }

 private:
  // Weighted sums over the steps.
  double steps_ = 0;
  double tokens_ = 0;
  double tokens_squared_ = 0;
  double time_ = 0;
  double tokens_by_time_ = 0;
  std::optional<double> fixed_in_tokens_;
};

}  // namespace tuft::engine
