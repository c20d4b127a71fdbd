// Between the wire's messages and the engine's types. Everything in a message is checked here before it is used: a
// length, shape, dtype or index that does not fit is kInvalidArgument naming datum and key, never the values.
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

// Loss input cells of one request, with sparse tensors written out: what keeps a small message from asking for a
// lot of memory.
inline constexpr int64_t kLossCellsMax = int64_t{1} << 26;

// `base_model` stands in messages only.
Result<engine::TrainRequest> to_train_request(const tinker_public::ForwardBackwardRequest& request,
                                              engine::AdapterId adapter, const std::string& base_model);

// One record for each run of datums with the same trailing shape, in the order of the datums.
tinker_public::ForwardBackwardOutput to_output(const engine::TrainOutput& output);

// `sampler` empty: the base model.
Result<engine::SampleRequest> to_sample_request(const v1::SampleRequest& request,
                                                std::optional<engine::AdapterId> sampler);

// Adds new tokens of a sample to what was not sent yet.
void append_tokens(std::span<const int32_t> tokens, std::span<const float> logprobs,
                   std::span<const std::vector<engine::TokenLogprob>> topk, v1::SampleTokens* message);

void to_sample_response(const engine::SampleResult& result, int64_t prompt_tokens, int topk,
                        v1::SampleResponse* response);

}  // namespace tuft::worker
