#include <algorithm>
#include <cmath>

#include "engine/loss/policy_gradient.h"

namespace tuft::engine {
namespace {

constexpr ClipRange kPpoRange = {0.8, 1.2};

// L = - sum min(r A, clip(r, low, high) A) (Schulman et al. 2017).
class Ppo final : public TokenwiseLoss {
 public:
  explicit Ppo(ClipRange range) : range_(range) {}
  std::span<const LossInput> inputs() const override { return kPolicyInputs; }
  TokenLoss token(double logprob, std::span<const double> inputs) const override {
    const PolicyToken token(logprob, inputs);
    // Prompt tokens have advantage 0 and an arbitrary q, so their ratio may be infinite.
    if (token.advantage == 0.0) return {};
    const double ratio = std::exp(token.logprob - token.sampled_logprob);
    const double free = ratio * token.advantage;
    const double clipped = std::clamp(ratio, range_.low, range_.high) * token.advantage;
    // If the clipped term is the smaller one, it does not depend on p. A ratio of NaN is not smaller, and makes NaN.
    return {-std::min(free, clipped), clipped < free ? 0.0 : -free, 1.0};
  }

 private:
  const ClipRange range_;
};

Result<std::unique_ptr<Loss>> make_ppo(const LossConfig& config) {
  TUFT_ASSIGN(const ClipRange range, ClipRange::read(config));
  return std::unique_ptr<Loss>(std::make_unique<Ppo>(range));
}

}  // namespace

LossType loss_ppo() {
  return {kPpoRange.keys(), make_ppo};
}

}  // namespace tuft::engine
