#include "engine/loss/loss.h"

#include <algorithm>

namespace tuft::engine {

// The losses. LOSS(name) stands for the file <name>.cc.
#define TUFT_LOSSES(LOSS)   \
  LOSS(cross_entropy)       \
  LOSS(importance_sampling) \
  LOSS(ppo)                 \
  LOSS(cispo)               \
  LOSS(dro)

#define TUFT_DECLARE(name) LossType loss_##name();
TUFT_LOSSES(TUFT_DECLARE)
#undef TUFT_DECLARE

namespace {

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

Status check_keys(const Registered& loss, const LossConfig& config) {
  for (const auto& [key, value] : config) {
    if (std::find(loss.type.config_keys.begin(), loss.type.config_keys.end(), key) != loss.type.config_keys.end())
      continue;
    const std::string known = loss.type.config_keys.empty() ? "it has none" : "it has " + joined(loss.type.config_keys);
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
    return loss.type.make(config);
  }
  return invalid_argument("unknown loss_fn '" + name.substr(0, 64) + "'; there are " + joined(loss_names()),
                          "unknown_loss");
}

}  // namespace tuft::engine
