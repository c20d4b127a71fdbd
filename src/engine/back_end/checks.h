// What every back end refuses before it computes, in the same words.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/model_spec.h"

namespace tuft::engine {

// Of forward(): a pack that is not what engine.h says. Whether its adapters are there, the AdapterTable knows.
Status check_forward(const ModelSpec& model, const Pack& pack, std::span<const float> logprobs);
// Of backward(), with what the pass that is kept has for targets; `kept` false: there is none.
Status check_backward(bool kept, size_t targets, std::span<const float> gradient);
// Of optim_steps(): one for each. Whether their adapters are there, the AdapterTable knows.
std::vector<Status> check_steps(std::span<const AdapterStep> steps);
// Of step(). Whether its sequence is open, the SequenceTable knows.
Status check_feed(const ModelSpec& model, const Feed& feed);

Error no_mark();
Error kv_cache_full(const KvUsage& usage);
// `what` they are for: "a training pass".
Error out_of_memory(const char* what);

}  // namespace tuft::engine
