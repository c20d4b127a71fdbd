// Losses, one file each. A loss is a sum over target tokens of a function of the token's log-probability and of what
// the datum says about that token; nothing is averaged.
//
// A new one: a file beside this one with its class and maker, one line in loss.cc.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tuft::engine {

// A float tensor of the datum, shaped like its target_tokens.
struct LossInput {
  std::string_view name;
  std::optional<double> fallback;  // of every element, where the datum does not have it; without one it must
};

struct TokenLoss {
  double loss = 0.0;
  double dloss_dlogprob = 0.0;
  double weight = 0.0;  // how much the token counts when a mean is asked for; below 0: then there is no mean
};

class Loss {
 public:
  virtual ~Loss() = default;
  // Besides target_tokens.
  virtual std::span<const LossInput> inputs() const = 0;
  // Whether a row may have several targets: target_tokens of shape [N, K].
  virtual bool several_targets() const { return false; }
  // `inputs` are the token's values, in the order of inputs().
  virtual TokenLoss token(double logprob, std::span<const double> inputs) const = 0;
};

using LossConfig = std::map<std::string, double>;

// kInvalidArgument for an unknown name (lists the known ones) and for a config key that the loss does not have.
Result<std::unique_ptr<Loss>> make_loss(const std::string& name, const LossConfig& config);
std::vector<std::string_view> loss_names();

}  // namespace tuft::engine
