#include "engine/loss/policy_gradient.h"

#include <cmath>
#include <string>

namespace tuft::engine {

Result<ClipRange> ClipRange::read(const LossConfig& config) {
  const ClipRange range{config.at(std::string(kLow)), config.at(std::string(kHigh))};
  if (!std::isfinite(range.low) || !std::isfinite(range.high) || range.low < 0 || range.low > range.high) {
    return invalid_argument(
        "loss_fn_config: required is 0 <= clip_low_threshold <= clip_high_threshold, such as [0.8, 1.2]; they are [" +
            std::to_string(range.low) + ", " + std::to_string(range.high) + "]",
        "bad_loss_config");
  }
  return range;
}

}  // namespace tuft::engine
