// The checks that every back end makes before it computes, and their error messages.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "engine/decode_engine.h"
#include "engine/model_spec.h"
#include "engine/training_engine.h"

namespace tuft::engine {

// Returns kInvalidArgument unless the pack satisfies training_engine.h and `logprobs` has its size. Does not check
// whether its adapters exist.
Status check_forward(const ModelSpec& model, const Pack& pack, std::span<const float> logprobs);
// `kept`: whether a pass is retained. `targets`: its number of targets.
Status check_backward(bool kept, size_t targets, std::span<const float> gradient);
// Returns one status per step: kInvalidArgument for an adapter that steps twice. Aborts if parameters are out of range,
// because the caller must have checked them. Does not check whether the adapters exist.
std::vector<Status> check_steps(std::span<const AdapterStep> steps);
// Returns kInvalidArgument that names both unless the parameters are those of the adapter's optimizer.
Status check_optimizer(Optimizer optimizer, const OptimParams& params);
// Returns kInvalidArgument unless the feed satisfies decode_engine.h. Does not check whether its sequence exists.
Status check_feed(const ModelSpec& model, const Feed& feed);

Error no_mark();
Error no_block_left();
Error kv_cache_full(const KvUsage& usage);
// `what` names what needs memory, such as "a training pass".
Error out_of_memory(const char* what);

}  // namespace tuft::engine
