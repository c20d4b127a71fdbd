// Translates a client's sample into the request to the worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "config/config.h"
#include "control/types/types.h"
#include "tuft/worker/v1/model_actor.pb.h"

namespace tuft::control {

inline constexpr int kNumSamplesMax = 128;
inline constexpr int kTopkLogprobsMax = 128;         // of topk_prompt_logprobs and of topk_sample_logprobs
inline constexpr int kPromptAltTokensMax = 128;      // for each position of the prompt
inline constexpr int64_t kTargetCellsMax = 1 << 20;  // of target_prompt_logprobs
// The limit of an answer's bytes besides its tokens and their log-probabilities. It travels in one message.
inline constexpr int64_t kScoreBytesMax = 128 << 20;
// The limits of sampling_params.stop. The worker has the same ones.
inline constexpr int kStopStringsMax = 64;
inline constexpr size_t kStopStringBytesMax = 1024;
inline constexpr int kStopTokensMax = 1024;

// Returns the id of sequence `index` of a sample, by which training requests name it.
std::string sequence_id(const RequestId& request, int64_t index);

// Checks everything that can be checked without the model. A missing max_tokens becomes the model's default_max_tokens,
// at most the rest of max_model_len. kInvalidArgument names the field and its rule.
Result<worker::v1::SampleRequest> make_sample_request(const config::ModelConfig& model, const UserId& user,
                                                      const Sample& sample);

// Returns the cost of a sample in the dispatch queue: the tokens of the prompt, more from the first one on that is
// scored, and the most that may be generated.
int64_t sample_cost(const config::ModelConfig& model, const worker::v1::SampleRequest& request);

// Returns the most bytes that the answer to a sample can have. It is charged to the user before the sample begins.
int64_t answer_bytes_max(const worker::v1::SampleRequest& request);

}  // namespace tuft::control
