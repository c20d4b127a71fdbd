// Losses, one file each (docs/losses.md has their formulas). A loss is a sum over datums, and a datum's part is a
// function of the log-probabilities of its target tokens and of the inputs that the datum gives. Nothing is averaged.
//
// To add a loss, write <name>.cc beside this file with its class and `LossType loss_<name>()`, and add its name to the
// list in loss.cc (and the file to CMakeLists.txt). A loss whose terms depend on one token each is a TokenwiseLoss.
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

// The target tokens of one datum, in row-major order.
struct DatumTargets {
  std::span<const float> logprobs;
  // The values of each of Loss::inputs(), one per token; empty: every one is the fallback.
  std::span<const std::span<const float>> inputs;
};

struct DatumLoss {
  double loss = 0.0;
  double weight = 0.0;   // of the datum in the mean of the loss
  bool has_mean = true;  // false: `weight` means nothing
};

class Loss {
 public:
  virtual ~Loss() = default;
  // The tensors that a datum has besides target_tokens.
  virtual std::span<const LossInput> inputs() const = 0;
  // Returns whether a row may have several targets: target_tokens of shape [N, K] instead of [N].
  virtual bool several_targets() const { return false; }
  // Returns what is wrong with a datum whose tensors have these values, each in the order of inputs(), or an empty
  // text. The values are finite; cells that are 0 may be missing.
  virtual std::string_view refusal(std::span<const std::span<const float>> /*values*/) const { return {}; }
  // Returns the loss of one datum, and writes its derivative by the log-probability of each token.
  virtual DatumLoss datum(const DatumTargets& targets, std::span<float> dloss) const = 0;
};

struct TokenLoss {
  double loss = 0.0;
  double dloss_dlogprob = 0.0;
  double weight = 0.0;  // of the token in the mean of the loss; below 0: the loss has no mean
};

// A loss that is a sum over tokens.
class TokenwiseLoss : public Loss {
 public:
  // Returns the loss of one token. `inputs` are its values in the order of inputs().
  virtual TokenLoss token(double logprob, std::span<const double> inputs) const = 0;
  DatumLoss datum(const DatumTargets& targets, std::span<float> dloss) const final;
};

using LossConfig = std::map<std::string, double>;
using LossTexts = std::map<std::string, std::string>;  // the part of the configuration whose values are texts

// A key of a loss's configuration, with the value that counts where the configuration lacks it.
struct LossKey {
  std::string_view name;
  double fallback;
};

struct LossType {
  std::vector<LossKey> keys;
  // Called with exactly these keys. Returns kInvalidArgument for a value out of range.
  Result<std::unique_ptr<Loss>> (*make)(const LossConfig&);
};

// Returns kInvalidArgument for an unknown name and for an unknown key, with the known ones, and for a text, because no
// loss has a key whose value is one.
Result<std::unique_ptr<Loss>> make_loss(const std::string& name, const LossConfig& config, const LossTexts& texts = {});
// Returns the names of all losses.
std::vector<std::string_view> loss_names();
// Returns the keys of the configuration of a loss, which must exist. Every loss has also `temperature`, which acts on
// the logits (trainer.h) and is none of these.
const std::vector<LossKey>& loss_keys(std::string_view name);

}  // namespace tuft::engine
