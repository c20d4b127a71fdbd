#include <array>

#include "engine/loss/loss.h"

namespace tuft::engine {
namespace {

// L = - sum w log p. Weights may be negative (a custom loss sends -dL/dlogprob) or above 1.
class CrossEntropy final : public TokenwiseLoss {
 public:
  std::span<const LossInput> inputs() const override { return kInputs; }
  bool several_targets() const override { return true; }
  TokenLoss token(double logprob, std::span<const double> inputs) const override {
    const double weight = inputs[0];
    // A masked token must not make the sum NaN if its probability is 0.
    if (weight == 0.0) return {};
    return {-weight * logprob, -weight, weight};
  }

 private:
  static constexpr std::array<LossInput, 1> kInputs = {{{"weights", 1.0}}};
};

Result<std::unique_ptr<Loss>> make_cross_entropy(const LossConfig& /*config*/) {
  return std::unique_ptr<Loss>(std::make_unique<CrossEntropy>());
}

}  // namespace

LossType loss_cross_entropy() {
  return {{}, make_cross_entropy};
}

}  // namespace tuft::engine
