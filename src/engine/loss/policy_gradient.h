// Common parts of the policy-gradient losses. Notation: p the current policy, q the policy that sampled the token, r =
// p / q their ratio, A the advantage. docs/losses.md says where formulas and defaults come from.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/loss/loss.h"

namespace tuft::engine {

// `logprobs` of the sampling policy, and `advantages`.
inline constexpr std::array<LossInput, 2> kPolicyInputs = {{{"logprobs", std::nullopt}, {"advantages", std::nullopt}}};

struct PolicyToken {
  double logprob;
  double sampled_logprob;
  double advantage;
  PolicyToken(double current, std::span<const double> inputs)
      : logprob(current), sampled_logprob(inputs[0]), advantage(inputs[1]) {}
};

// Bounds of r: clip_low_threshold and clip_high_threshold. They are the bounds, not distances from 1.
struct ClipRange {
  static constexpr std::string_view kLow = "clip_low_threshold";
  static constexpr std::string_view kHigh = "clip_high_threshold";
  double low;
  double high;

  // Returns the keys with these values as their defaults.
  std::vector<LossKey> keys() const { return {{kLow, low}, {kHigh, high}}; }
  // Returns the range that a complete configuration gives, or kInvalidArgument if a bound is negative or not finite, or
  // if low is above high.
  static Result<ClipRange> read(const LossConfig& config);
};

}  // namespace tuft::engine
