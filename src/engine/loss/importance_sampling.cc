#include <cmath>

#include "engine/loss/losses.h"
#include "engine/loss/policy_gradient.h"

namespace tuft::engine {
namespace {

// L = - sum r A.
class ImportanceSampling final : public Loss {
 public:
  std::span<const LossInput> inputs() const override { return kPolicyInputs; }
  TokenLoss token(double logprob, std::span<const double> inputs) const override {
    const PolicyToken token(logprob, inputs);
    // Prompt tokens come with advantage 0 and a q of no meaning, whose ratio may be infinite.
    if (token.advantage == 0.0) return {};
    const double term = -std::exp(token.logprob - token.sampled_logprob) * token.advantage;
    return {term, term, 1.0};
  }
};

}  // namespace

Result<std::unique_ptr<Loss>> make_importance_sampling(const LossConfig& /*config*/) {
  return std::unique_ptr<Loss>(std::make_unique<ImportanceSampling>());
}

}  // namespace tuft::engine
