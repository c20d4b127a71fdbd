#include <algorithm>
#include <array>
#include <cmath>

#include "engine/loss/policy_gradient.h"

namespace tuft::engine {
namespace {

constexpr ClipRange kGspoRange = {0.9997, 1.0004};

bool any(std::span<const float> values) {
  return std::any_of(values.begin(), values.end(), [](float value) { return value != 0.0F; });
}

// L = - sum min(s A, clip(s, low, high) A) with one ratio s for all tokens of a datum, the geometric mean of the ratios
// of the masked ones; the gradient goes through each token's own log-probability (GSPO-token, Zheng et al. 2025).
class Gspo final : public Loss {
 public:
  explicit Gspo(ClipRange range) : range_(range) {}
  std::span<const LossInput> inputs() const override { return kInputs; }

  std::string_view refusal(std::span<const std::span<const float>> values) const override {
    if (any(values[kMask]) || !any(values[kAdvantages])) return {};
    return "it has advantages, but its sequence_ratio_mask is 0 everywhere, so that it has no ratio";
  }

  DatumLoss datum(const DatumTargets& targets, std::span<float> dloss) const override {
    const double ratio = ratio_of(targets);
    const double clipped = std::clamp(ratio, range_.low, range_.high);
    DatumLoss sum;
    for (size_t i = 0; i < dloss.size(); ++i) {
      const double advantage = targets.inputs[kAdvantages][i];
      dloss[i] = 0.0F;
      // The ratio of a datum that has no advantages may be infinite.
      if (advantage == 0.0) continue;
      const double free_term = ratio * advantage;
      const double clipped_term = clipped * advantage;
      sum.loss -= std::min(free_term, clipped_term);
      sum.weight += 1.0;
      // If the clipped term is the smaller one, it does not depend on p. A ratio of NaN is not smaller, and makes NaN.
      if (!(clipped_term < free_term)) dloss[i] = static_cast<float>(-free_term);
    }
    return sum;
  }

 private:
  static constexpr size_t kSampled = 0;
  static constexpr size_t kAdvantages = 1;
  static constexpr size_t kMask = 2;
  static constexpr std::array<LossInput, 3> kInputs = {
      {kPolicyInputs[kSampled], kPolicyInputs[kAdvantages], {"sequence_ratio_mask", std::nullopt}}};

  static double ratio_of(const DatumTargets& targets) {
    double sum = 0.0;
    double count = 0.0;
    for (size_t i = 0; i < targets.logprobs.size(); ++i) {
      if (targets.inputs[kMask][i] == 0.0F) continue;
      sum += double{targets.logprobs[i]} - double{targets.inputs[kSampled][i]};
      count += 1.0;
    }
    return count == 0.0 ? 1.0 : std::exp(sum / count);
  }

  const ClipRange range_;
};

Result<std::unique_ptr<Loss>> make_gspo(const LossConfig& config) {
  TUFT_ASSIGN(const ClipRange range, ClipRange::read(config));
  return std::unique_ptr<Loss>(std::make_unique<Gspo>(range));
}

}  // namespace

LossType loss_gspo() {
  return {kGspoRange.keys(), make_gspo};
}

}  // namespace tuft::engine
