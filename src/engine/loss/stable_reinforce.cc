#include "engine/loss/stable_reinforce.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/loss/policy_gradient.h"

namespace tuft::engine {
namespace {

constexpr double kRatioMax = 2.0;
constexpr std::string_view kKlCoeff = "kl_coeff";

// L = - sum min(sg(r), 2) A p + kl_coeff sum (r - 1 - (p - q)) over the sampled tokens; the second sum estimates the KL
// divergence of the learner from the sampler ("k3").
class StableReinforce final : public TokenwiseLoss {
 public:
  explicit StableReinforce(double kl_coeff) : kl_coeff_(kl_coeff) {}
  std::span<const LossInput> inputs() const override { return kInputs; }

  std::string_view refusal(std::span<const std::span<const float>> values) const override {
    for (size_t i = 0; i < values[kAdvantages].size() && i < values[kMask].size(); ++i) {
      if (values[kAdvantages][i] != 0.0F && values[kMask][i] == 0.0F) {
        return "it has an advantage on a token that its loss_fn_input_spans do not call sampled";
      }
    }
    return {};
  }

  TokenLoss token(double logprob, std::span<const double> inputs) const override {
    if (inputs[kMask] == 0.0) return {};
    const PolicyToken token(logprob, inputs);
    const double distance = token.logprob - token.sampled_logprob;
    const double ratio = std::exp(distance);
    const double slope = -std::min(ratio, kRatioMax) * token.advantage;
    TokenLoss loss{slope * token.logprob, slope, 1.0};
    if (kl_coeff_ != 0.0) {  // the ratio may be infinite
      loss.loss += kl_coeff_ * (ratio - 1.0 - distance);
      loss.dloss_dlogprob += kl_coeff_ * (ratio - 1.0);
    }
    return loss;
  }

 private:
  static constexpr size_t kAdvantages = 1;
  static constexpr size_t kMask = 2;
  static constexpr std::array<LossInput, 3> kInputs = {
      {kPolicyInputs[0], kPolicyInputs[1], {kSampledMask, std::nullopt}}};

  const double kl_coeff_;
};

Result<std::unique_ptr<Loss>> make_stable_reinforce(const LossConfig& config) {
  const double kl_coeff = config.at(std::string(kKlCoeff));
  if (!std::isfinite(kl_coeff) || kl_coeff < 0) {
    return invalid_argument(
        "loss_fn_config: kl_coeff is " + std::to_string(kl_coeff) + "; it must be finite and at least 0",
        "bad_loss_config");
  }
  return std::unique_ptr<Loss>(std::make_unique<StableReinforce>(kl_coeff));
}

}  // namespace

LossType loss_stable_reinforce() {
  return {{{kKlCoeff, 0.0}}, make_stable_reinforce};
}

}  // namespace tuft::engine
