#include <algorithm>
#include <cmath>

#include "engine/loss/policy_gradient.h"

namespace tuft::engine {
namespace {

constexpr ClipRange kCispoRange = {0.0, 4.0};

// L = - sum clip(r, low, high) A log p, with no gradient through the clipped ratio (MiniMax-M1, 2025).
class Cispo final : public TokenwiseLoss {
 public:
  explicit Cispo(ClipRange range) : range_(range) {}
  std::span<const LossInput> inputs() const override { return kPolicyInputs; }
  TokenLoss token(double logprob, std::span<const double> inputs) const override {
    const PolicyToken token(logprob, inputs);
    if (token.advantage == 0.0) return {};
    const double ratio = std::exp(token.logprob - token.sampled_logprob);
    const double scale = -std::clamp(ratio, range_.low, range_.high) * token.advantage;
    return {scale * token.logprob, scale, 1.0};
  }

 private:
  const ClipRange range_;
};

Result<std::unique_ptr<Loss>> make_cispo(const LossConfig& config) {
  TUFT_ASSIGN(const ClipRange range, ClipRange::read(config));
  return std::unique_ptr<Loss>(std::make_unique<Cispo>(range));
}

}  // namespace

LossType loss_cispo() {
  return {kCispoRange.keys(), make_cispo};
}

}  // namespace tuft::engine
