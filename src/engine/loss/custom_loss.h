// Custom losses: those that a client uploaded as a graph (loss_graph/program.h).
#pragma once

#include <memory>
#include <span>

#include "base/result.h"
#include "engine/batch/checked_datum.h"
#include "engine/loss/loss.h"
#include "engine/trainer.h"
#include "loss_graph/program.h"

namespace tuft::engine {

// The value of loss_fn for a request with a custom loss.
inline constexpr std::string_view kCustomLoss = "custom";

// The SDK sends no more in one request.
inline constexpr size_t kCustomLossDatumsMax = 1024;

// Takes the inputs of request.custom_loss out of each datum, drops those that it does not read, and computes what its
// evaluation costs. Works for at most about 0.2 s, so it is called before the request comes to the engine thread.
// Returns kInvalidArgument with the datum and the input, or (reason custom_loss_too_large) for more than
// kCustomLossDatumsMax datums, or if their shapes are so many, and the graph is so long, that planning them would take
// longer.
Status prepare_custom_loss(TrainRequest& request);

// Returns what checks the targets of datums that have a custom loss. It computes no loss.
std::unique_ptr<Loss> make_custom_targets(const loss_graph::Program& program);

// Returns the number of tokens whose forward and backward pass takes as long as an evaluation of so many elements, at
// least 1. By it the evaluation counts in the share of its user. `peak_flops` is that of
// Engine::assumed_peak_flops().
int64_t tokens_worth(const ModelSpec& model, double peak_flops, int64_t elements);

// Computes the loss of datum `index` of a request. Thread-safe. Returns kInvalidArgument as Program::evaluate() does,
// with the datum, and out_of_memory() if memory runs out; does not throw.
Result<loss_graph::Outcome> evaluate_custom_loss(const loss_graph::Program& program, const CheckedDatum& datum,
                                                 size_t index, std::span<const float> logprobs);

}  // namespace tuft::engine
