#include "engine/loss/loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace tuft::engine {

// The losses. LOSS(name) stands for the file <name>.cc.
#define TUFT_LOSSES(LOSS)   \
  LOSS(cross_entropy)       \
  LOSS(importance_sampling) \
  LOSS(ppo)                 \
  LOSS(cispo)               \
  LOSS(dro)                 \
  LOSS(gspo)                \
  LOSS(stable_reinforce)

#define TUFT_DECLARE(name) LossType loss_##name();
TUFT_LOSSES(TUFT_DECLARE)
#undef TUFT_DECLARE

namespace {

constexpr std::string_view kTemperature = "temperature";

struct Registered {
  std::string_view name;
  LossType type;
};

const std::vector<Registered>& registry() {
#define TUFT_REGISTER(name) {#name, loss_##name()},
  static const std::vector<Registered> losses = {TUFT_LOSSES(TUFT_REGISTER)};
#undef TUFT_REGISTER
  return losses;
}

std::string joined(const std::vector<std::string_view>& words) {
  std::string out;
  for (const std::string_view word : words) out += (out.empty() ? "" : ", ") + std::string(word);
  return out;
}

// Every loss has the key "temperature", which the training task takes out of the configuration.
Status check_key(const Registered& loss, const std::string& key) {
  std::vector<std::string_view> known;
  for (const LossKey& one : loss.type.keys) {
    if (one.name == key) return {};
    known.push_back(one.name);
  }
  known.push_back(kTemperature);
  return invalid_argument(
      "loss_fn_config: " + std::string(loss.name) + " has no key '" + key.substr(0, 64) + "'; it has " + joined(known),
      "unknown_loss_config");
}

Status check_config(const Registered& loss, const LossConfig& config, const LossTexts& texts) {
  for (const auto& [key, value] : config) TUFT_TRY(check_key(loss, key));
  for (const auto& [key, text] : texts) {
    if (key != kTemperature) TUFT_TRY(check_key(loss, key));
    return invalid_argument("loss_fn_config: '" + key + "' of " + std::string(loss.name) + " is a number, not a text",
                            "bad_loss_config");
  }
  return {};
}

}  // namespace

DatumLoss TokenwiseLoss::datum(const DatumTargets& targets, std::span<float> dloss) const {
  const std::span<const LossInput> names = inputs();
  std::vector<double> values(names.size());
  DatumLoss sum;
  for (size_t i = 0; i < targets.logprobs.size(); ++i) {
    for (size_t k = 0; k < names.size(); ++k) {
      const std::span<const float> given = targets.inputs[k];
      values[k] = given.empty() ? names[k].fallback.value_or(0.0) : double{given[i]};
    }
    const TokenLoss one = token(targets.logprobs[i], values);
    sum.loss += one.loss;
    sum.weight += one.weight;
    sum.has_mean = sum.has_mean && one.weight >= 0;
    // With a finite derivative, or with 0, whose row is dropped, a step would be made after a loss that is not finite.
    const double slope = std::isfinite(one.loss) ? one.dloss_dlogprob : std::numeric_limits<double>::quiet_NaN();
    dloss[i] = static_cast<float>(slope);
  }
  return sum;
}

std::vector<std::string_view> loss_names() {
  std::vector<std::string_view> out;
  for (const Registered& loss : registry()) out.push_back(loss.name);
  return out;
}

const std::vector<LossKey>& loss_keys(std::string_view name) {
  const auto found =
      std::find_if(registry().begin(), registry().end(), [&](const auto& loss) { return loss.name == name; });
  TUFT_CHECK(found != registry().end(), "loss_keys() of an unknown loss");
  return found->type.keys;
}

Result<std::unique_ptr<Loss>> make_loss(const std::string& name, const LossConfig& config, const LossTexts& texts) {
  for (const Registered& loss : registry()) {
    if (loss.name != name) continue;
    TUFT_TRY(check_config(loss, config, texts));
    LossConfig complete = config;
    for (const LossKey& key : loss.type.keys) complete.emplace(key.name, key.fallback);
    return loss.type.make(complete);
  }
  return invalid_argument("unknown loss_fn '" + name.substr(0, 64) + "'; there are " + joined(loss_names()),
                          "unknown_loss");
}

}  // namespace tuft::engine
