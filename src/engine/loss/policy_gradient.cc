#include "engine/loss/policy_gradient.h"

#include <cmath>
#include <string>

namespace tuft::engine {

Result<ClipRange> ClipRange::read(const LossConfig& config) {
  ClipRange range;
  if (const auto low = config.find(std::string(kLow)); low != config.end()) range.low = low->second;
  if (const auto high = config.find(std::string(kHigh)); high != config.end()) range.high = high->second;
  if (!std::isfinite(range.low) || !std::isfinite(range.high) || range.low < 0 || range.low > range.high) {
    return invalid_argument(
        "loss_fn_config: required is 0 <= clip_low_threshold <= clip_high_threshold, such as [0.9, 1.1]; they are [" +
            std::to_string(range.low) + ", " + std::to_string(range.high) + "]",
        "bad_loss_config");
  }
  return range;
}

}  // namespace tuft::engine
