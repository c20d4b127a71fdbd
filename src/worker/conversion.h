// Converts between the messages of the protocol and the engine's types. Everything in a message is checked here before
// use: a length, shape, dtype or index that does not fit is a kInvalidArgument that names datum and key, never values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/sample/sampler.h"
#include "engine/trainer.h"
#include "tinker/public.pb.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::worker {

// The most loss input cells of one request, counting sparse tensors as dense. A small message could otherwise ask for
// much memory. Sparse tensors become dense only when their datum runs; the control plane charges the user for that.
inline constexpr int64_t kLossCellsMax = int64_t{1} << 26;

// `base_model` is named in error messages.
Result<engine::TrainRequest> to_train_request(const tinker_public::ForwardBackwardRequest& request,
                                              engine::AdapterId adapter, const std::string& base_model);

// The result has one record for each series of consecutive datums with the same trailing shape.
tinker_public::ForwardBackwardOutput to_output(const engine::TrainOutput& output);

// Without `sampler` the request samples from the base model.
Result<engine::SampleRequest> to_sample_request(const v1::SampleRequest& request,
                                                std::optional<engine::AdapterId> sampler);

// Appends new tokens of a sample to `message`, which was not sent yet.
void append_tokens(std::span<const int32_t> tokens, std::span<const float> logprobs,
                   std::span<const std::vector<engine::TokenLogprob>> topk, v1::SampleTokens* message);

// `topk` is the request's topk_prompt_logprobs.
v1::SampleResponse to_sample_response(const engine::SampleResult& result, int64_t prompt_tokens, int topk);

}  // namespace tuft::worker
