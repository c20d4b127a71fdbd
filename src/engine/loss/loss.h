// Losses, one file each. A loss is a sum over target tokens. Each term is a function of the token's log-probability and
// of the inputs that the datum gives for the token. Nothing is averaged.
//
// To add a loss, write <name>.cc beside this file with its class and `LossType loss_<name>()`, and add its name to the
// list in loss.cc (and the file to CMakeLists.txt).
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
  std::optional<double> fallback;  // value of every element if the datum lacks the tensor; nullopt: it is required
};

struct TokenLoss {
  double loss = 0.0;
  double dloss_dlogprob = 0.0;
  double weight = 0.0;  // of the token in the mean of the loss; below 0: the loss has no mean
};

class Loss {
 public:
  virtual ~Loss() = default;
  // The tensors that a datum has besides target_tokens.
  virtual std::span<const LossInput> inputs() const = 0;
  // Returns whether a row may have several targets: target_tokens of shape [N, K] instead of [N].
  virtual bool several_targets() const { return false; }
  // Returns the loss of one token. `inputs` are its values in the order of inputs().
  virtual TokenLoss token(double logprob, std::span<const double> inputs) const = 0;
};

using LossConfig = std::map<std::string, double>;

struct LossType {
  std::vector<std::string_view> config_keys;
  // Called with these keys only. Returns kInvalidArgument for a value out of range.
  Result<std::unique_ptr<Loss>> (*make)(const LossConfig&);
};

// Returns kInvalidArgument for an unknown name, with the known ones, and for an unknown config key.
Result<std::unique_ptr<Loss>> make_loss(const std::string& name, const LossConfig& config);
// Returns the names of all losses.
std::vector<std::string_view> loss_names();

}  // namespace tuft::engine
