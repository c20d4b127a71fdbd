// From what a client asks for to what the worker is asked for.
#pragma once

#include "base/result.h"
#include "config/config.h"
#include "control/types.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::control {

inline constexpr int kNumSamplesMax = 128;
inline constexpr int kTopkPromptLogprobsMax = 128;

// Checks everything that can be known without the model and fills in max_tokens where the client left it open: the
// model's default_max_tokens, at most what is left of max_model_len. kInvalidArgument naming the field and its rule.
Result<worker::v1::SampleRequest> make_sample_request(const config::ModelConfig& model, const Sample& sample);

// What a user pays for its turn: the tokens of the prompt, and those that may come.
int64_t sample_cost(const config::ModelConfig& model, const worker::v1::SampleRequest& request);

}  // namespace tuft::control
