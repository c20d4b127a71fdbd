#include <array>
#include <cmath>

#include "engine/loss/losses.h"

namespace tuft::engine {
namespace {

// L = - sum exp(log p - q) A, with q the log-probability under the policy that sampled the token.
class ImportanceSampling final : public Loss {
 public:
  std::span<const LossInput> inputs() const override { return kInputs; }
  TokenLoss token(double logprob, std::span<const double> inputs) const override {
    const double sampled_logprob = inputs[0];
    const double advantage = inputs[1];
    // Prompt tokens come with advantage 0 and a q of no meaning, whose ratio may be infinite.
    if (advantage == 0.0) return {};
    const double term = -std::exp(logprob - sampled_logprob) * advantage;
    return {term, term, 1.0};
  }

 private:
  static constexpr std::array<LossInput, 2> kInputs = {{{"logprobs", std::nullopt}, {"advantages", std::nullopt}}};
};

}  // namespace

Result<std::unique_ptr<Loss>> make_importance_sampling(const LossConfig& /*config*/) {
  return std::unique_ptr<Loss>(std::make_unique<ImportanceSampling>());
}

}  // namespace tuft::engine
