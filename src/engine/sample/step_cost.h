// StepCost: how the time of a step depends on its tokens, where one with a scored row, or with many positions to attend
// to, counts as several (Schedule). It keeps the mean time of the newest steps of each size, by powers of two, and fits
// `fixed + per_token * tokens` to these means, with the least squares of the relative errors. What it knows of small
// steps thus stays although many large ones follow: from those alone the fixed part cannot be told, and if it seemed
// large, tenants that share would get no smaller steps, which could correct it. Confined to the engine thread.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "base/clock.h"
#include "engine/sample/newest_mean.h"

namespace tuft::engine {

class StepCost {
 public:
  // Ignores a step without tokens or time.
  void stepped(size_t tokens, Nanos duration);

  // Returns fixed / per_token: how many tokens take as long as the part of a step that does not depend on its tokens.
  // At least 0; infinite where tokens cost nothing. Absent until there were steps of different sizes.
  std::optional<double> fixed_in_tokens() const { return fixed_in_tokens_; }

 private:
  // Of one size.
  struct Steps {
    NewestMean tokens;
    NewestMean time;
  };
  static constexpr size_t kSizes = 24;

  void fit();

  std::array<Steps, kSizes> sizes_;  // [i]: of 2^i to 2^(i + 1) - 1 tokens, the last one also of more
  std::optional<double> fixed_in_tokens_;
};

}  // namespace tuft::engine
