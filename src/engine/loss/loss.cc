#include "engine/loss/loss.h"

#include <algorithm>
#include <initializer_list>

#include "engine/loss/losses.h"
#include "engine/loss/policy_gradient.h"

namespace tuft::engine {
namespace {

struct Registered {
  std::string_view name;
  std::vector<std::string_view> config_keys;
  Result<std::unique_ptr<Loss>> (*make)(const LossConfig&);
};

const std::vector<Registered>& registry() {
  static const std::vector<Registered> losses = {
      {"cross_entropy", {}, make_cross_entropy},
      {"importance_sampling", {}, make_importance_sampling},
      {"ppo", {ClipRange::kLow, ClipRange::kHigh}, make_ppo},
      {"cispo", {ClipRange::kLow, ClipRange::kHigh}, make_cispo},
      {"dro", {"beta"}, make_dro},
  };
  return losses;
}

std::string joined(const std::vector<std::string_view>& words) {
  std::string out;
  for (const std::string_view word : words) out += (out.empty() ? "" : ", ") + std::string(word);
  return out;
}

Status check_keys(const Registered& loss, const LossConfig& config) {
  for (const auto& [key, value] : config) {
    if (std::find(loss.config_keys.begin(), loss.config_keys.end(), key) != loss.config_keys.end()) continue;
    const std::string known = loss.config_keys.empty() ? "it has none" : "it has " + joined(loss.config_keys);
    return invalid_argument(
        "loss_fn_config: " + std::string(loss.name) + " has no key '" + key.substr(0, 64) + "'; " + known,
        "unknown_loss_config");
  }
  return {};
}

}  // namespace

std::vector<std::string_view> loss_names() {
  std::vector<std::string_view> out;
  for (const Registered& loss : registry()) out.push_back(loss.name);
  return out;
}

Result<std::unique_ptr<Loss>> make_loss(const std::string& name, const LossConfig& config) {
  for (const Registered& loss : registry()) {
    if (loss.name != name) continue;
    TUFT_TRY(check_keys(loss, config));
    return loss.make(config);
  }
  return invalid_argument("unknown loss_fn '" + name.substr(0, 64) + "'; there are " + joined(loss_names()),
                          "unknown_loss");
}

}  // namespace tuft::engine
