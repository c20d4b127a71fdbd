#include <cmath>

#include "engine/loss/policy_gradient.h"

namespace tuft::engine {
namespace {

// L = - sum r A.
class ImportanceSampling final : public TokenwiseLoss {
 public:
  std::span<const LossInput> inputs() const override { return kPolicyInputs; }
  TokenLoss token(double logprob, std::span<const double> inputs) const override {
    const PolicyToken token(logprob, inputs);
    // Prompt tokens have advantage 0 and an arbitrary q, so their ratio may be infinite.
    if (token.advantage == 0.0) return {};
    const double term = -std::exp(token.logprob - token.sampled_logprob) * token.advantage;
    return {term, term, 1.0};
  }
};

Result<std::unique_ptr<Loss>> make_importance_sampling(const LossConfig& /*config*/) {
  return std::unique_ptr<Loss>(std::make_unique<ImportanceSampling>());
}

}  // namespace

LossType loss_importance_sampling() {
  return {{}, make_importance_sampling};
}

}  // namespace tuft::engine
