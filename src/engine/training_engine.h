// TrainingEngine: forward and backward passes over packed sequences, and optimizer steps.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "engine/lora.h"

namespace tuft::engine {

// One sequence of a pass: rows [begin, end) of Pack::tokens, at positions 0, 1, ...
struct Segment {
  AdapterId adapter;  // empty: the base model alone
  int begin = 0;
  int end = 0;
  float temperature = 1.0F;  // > 0; the logits are divided by it
};

// Requests log p(token | rows of the segment up to and including `row`).
struct Target {
  int row = 0;  // in Pack::tokens
  int32_t token = 0;
};

// Sequences of any lengths and adapters, one after the other, without padding.
struct Pack {
  std::vector<int32_t> tokens;
  std::vector<Segment> segments;  // cover `tokens` in order, without gaps
  std::vector<Target> targets;    // ordered by row; a row may have several or none
};

// AdamW with decoupled weight decay (Loshchilov and Hutter 2019), as in torch.optim.AdamW. Learning rate and weight
// decay are finite, betas are in [0, 1) and eps is at least 0; the caller has checked this.
struct AdamParams {
  double learning_rate = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-12;
  double weight_decay = 0.0;
  double grad_clip_norm = 0.0;  // over all tensors of the adapter, factor max / (norm + 1e-6); 0: no clipping
};

// A step along an orthogonal matrix (docs/optimizers.md). The learning rate is finite, beta1 is in [0, 1).
struct DimuonParams {
  double learning_rate = 1e-4;
  double beta1 = 0.9;
  double grad_clip_norm = 0.0;  // as above
};

using OptimParams = std::variant<AdamParams, DimuonParams>;
Optimizer optimizer_of(const OptimParams& params);

struct AdapterStep {
  AdapterId adapter;
  OptimParams params;  // of the adapter's optimizer
};

struct OptimReport {
  double grad_norm = 0.0;  // L2 norm before clipping
  int64_t parameters = 0;  // of the adapter
  int64_t step = 0;        // number of steps, including this one
  bool applied = false;    // false: no step was made, since there was no gradient, or it was not finite and was zeroed
  bool clipped = false;    // grad_norm was above grad_clip_norm
  bool finite = true;      // false: the step made some weights infinite or NaN, and they stay so
};

// The adapters are those of the engine's AdapterStore. Confined to the engine thread.
//
// Gradients of an adapter are summed, target by target in the order of the packs, until an optimizer step or
// AdapterStore::clear_gradients(). Neither the results of a segment nor the gradient of an adapter depend on the rest
// of the pack, nor on how the segments of an adapter are divided among packs.
class TrainingEngine {
 public:
  virtual ~TrainingEngine() = default;

  // Writes one log-probability (natural logarithm) per target. With `keep` it retains what backward() needs, until
  // backward(), drop_pass(), the next forward(), or a change of one of the adapters. Returns kNotFound if an adapter is
  // missing, kInvalidArgument for a malformed pack, kResourceExhausted if memory runs out.
  virtual Status forward(const Pack& pack, bool keep, std::span<float> logprobs) = 0;
  // Adds to the gradients of the adapters. `dloss_dlogprobs` has the derivative of the loss for every target. Returns
  // kFailedPrecondition if no pass is retained. After any other error the gradients of the adapters in the pack are
  // undefined until they are restored or cleared.
  virtual Status backward(std::span<const float> dloss_dlogprobs) = 0;
  // Frees what forward() retained, if anything, for a pass that gets no backward(). Does not throw.
  virtual void drop_pass() = 0;

  // Makes one step for each of several adapters, each at most once, in one pass over their parameters, and zeroes
  // their gradients. An adapter without an accumulated gradient does not change and counts no step, as in torch:
  // otherwise a step that a client pipelined behind a failing pass would move the weights by old momentum. Returns one
  // report per step, in order. Norm, clipping, moments and failure belong to each adapter alone; its bits do not depend
  // on the other adapters. Parameters of another optimizer than the adapter's are kInvalidArgument.
  virtual std::vector<Result<OptimReport>> optim_steps(std::span<const AdapterStep> steps) = 0;
  Result<OptimReport> optim_step(const AdapterId& id, const AdamParams& params) {
    const AdapterStep step{id, params};
    return std::move(optim_steps({&step, 1}).front());
  }
};

}  // namespace tuft::engine
