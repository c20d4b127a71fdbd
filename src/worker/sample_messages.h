// Converts between the messages of samples and the engine's types. What is malformed in a message is a kInvalidArgument
// that names the field; the values of the fields are checked by the sampler.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/sample/sampler.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::worker {

// Without `sampler` the request samples from the base model.
Result<engine::SampleRequest> to_sample_request(const v1::SampleRequest& request,
                                                std::optional<engine::AdapterId> sampler);

// Appends new tokens of a sample to `message`, which was not sent yet.
void append_tokens(std::span<const int32_t> tokens, std::span<const float> logprobs,
                   std::span<const std::vector<engine::TokenLogprob>> topk, v1::SampleTokens* message);

// The fields of a request that decide the form of its answer.
struct AnswerForm {
  int64_t prompt_tokens = 0;
  int topk_prompt_logprobs = 0;
  int topk_logprobs = 0;  // 0 for a stream, which has sent them
  int prompt_alt_tokens = 0;
  bool record = false;
  std::optional<v1::PromptTargets> targets = std::nullopt;  // without the tokens
};
AnswerForm answer_form(const v1::SampleRequest& request, bool is_stream);

v1::SampleResponse to_sample_response(const engine::SampleResult& result, const AnswerForm& form);

}  // namespace tuft::worker
