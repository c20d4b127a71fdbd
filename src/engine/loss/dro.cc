#include <cmath>

#include "engine/loss/policy_gradient.h"

namespace tuft::engine {
namespace {

constexpr std::string_view kBeta = "beta";

// L = - sum [A log p - beta/2 (log p - log q)^2] (Richemond et al. 2024). The second term counts for every token,
// whatever its advantage.
class Dro final : public TokenwiseLoss {
 public:
  explicit Dro(double beta) : beta_(beta) {}
  std::span<const LossInput> inputs() const override { return kPolicyInputs; }
  TokenLoss token(double logprob, std::span<const double> inputs) const override {
    const PolicyToken token(logprob, inputs);
    const double distance = token.logprob - token.sampled_logprob;
    return {0.5 * beta_ * distance * distance - token.logprob * token.advantage, beta_ * distance - token.advantage,
            1.0};
  }

 private:
  const double beta_;
};

Result<std::unique_ptr<Loss>> make_dro(const LossConfig& config) {
  const double beta = config.at(std::string(kBeta));
  if (!std::isfinite(beta) || beta < 0) {
    return invalid_argument("loss_fn_config: beta is " + std::to_string(beta) + "; it must be finite and at least 0",
                            "bad_loss_config");
  }
  return std::unique_ptr<Loss>(std::make_unique<Dro>(beta));
}

}  // namespace

LossType loss_dro() {
  return {{{kBeta, 0.01}}, make_dro};
}

}  // namespace tuft::engine
