#include "control/sampling/sample_request.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

namespace tuft::control {
namespace {

// The bytes of an answer in the form of tinker_public.SampleResponse.
constexpr int64_t kLogprobBytes = sizeof(float);
constexpr int64_t kTokenBytes = sizeof(int32_t) + kLogprobBytes;  // of a token with its log-probability
constexpr int64_t kSequenceBytes = 64;                            // of a sequence and of the answer, without tokens
// The cost of a prompt token whose log-probabilities are requested, in tokens without. The worker counts the same.
constexpr int64_t kRowCost = 4;

Error refuse(std::string message) {
  return invalid_argument(std::move(message), "invalid_sample_request");
}

Status check_stops(const tinker_public::SamplingParams& params) {
  if (params.stop_strs().values_size() > kStopStringsMax || params.stop_tokens().values_size() > kStopTokensMax) {
    return refuse("sampling_params.stop must have at most " + std::to_string(kStopStringsMax) + " strings or " +
                  std::to_string(kStopTokensMax) + " token ids");
  }
  const auto& texts = params.stop_strs().values();
  if (std::any_of(texts.begin(), texts.end(), [](const std::string& text) { return text.empty(); })) {
    return refuse("sampling_params.stop has an empty string; leave it out");
  }
  if (std::any_of(texts.begin(), texts.end(), [](const auto& text) { return text.size() > kStopStringBytesMax; })) {
    return refuse("sampling_params.stop has a string of more than " + std::to_string(kStopStringBytesMax) + " bytes");
  }
  return {};
}

Status check_params(const tinker_public::SamplingParams& params) {
  if (params.has_temperature() && !(std::isfinite(params.temperature()) && params.temperature() >= 0)) {
    return refuse("sampling_params.temperature must be a number >= 0; 0 takes the most likely token");
  }
  if (params.has_top_p() && !(params.top_p() > 0 && params.top_p() <= 1)) {
    return refuse("sampling_params.top_p must be greater than 0 and at most 1");
  }
  if (params.has_top_k() && params.top_k() != -1 && params.top_k() < 1) {
    return refuse("sampling_params.top_k must be -1 (off) or at least 1");
  }
  if (params.has_max_tokens() && params.max_tokens() < 1)
    return refuse("sampling_params.max_tokens must be at least 1");
  return check_stops(params);
}

Status check_sample(const Sample& sample) {
  if (sample.num_samples < 1 || sample.num_samples > kNumSamplesMax) {
    return refuse("num_samples must be between 1 and " + std::to_string(kNumSamplesMax));
  }
  if (sample.topk_prompt_logprobs < 0 || sample.topk_prompt_logprobs > kTopkPromptLogprobsMax) {
    return refuse("topk_prompt_logprobs must be between 0 (off) and " + std::to_string(kTopkPromptLogprobsMax));
  }
  if (sample.prompt_tokens.empty()) return refuse("prompt must have at least one token");
  if (std::any_of(sample.prompt_tokens.begin(), sample.prompt_tokens.end(), [](int32_t token) { return token < 0; })) {
    return refuse("prompt has a negative token id");
  }
  return check_params(sample.params);
}

}  // namespace

Result<worker::v1::SampleRequest> make_sample_request(const config::ModelConfig& model, const UserId& user,
                                                      const Sample& sample) {
  TUFT_TRY(check_sample(sample));
  const auto prompt = static_cast<int64_t>(sample.prompt_tokens.size());
  const int64_t room = model.max_model_len - prompt;
  const int64_t wanted = sample.params.has_max_tokens() ? sample.params.max_tokens() : 1;
  if (wanted > room) {
    return invalid_argument("PromptTooLong: the prompt has " + std::to_string(prompt) + " tokens and with " +
                                std::to_string(wanted) + " more is over the model's limit of " +
                                std::to_string(model.max_model_len) + " (max_model_len)",
                            "prompt_too_long");
  }
  worker::v1::SampleRequest request;
  static_assert(std::endian::native == std::endian::little, "prompt_tokens is little-endian on the wire");
  request.set_prompt_tokens(reinterpret_cast<const char*>(sample.prompt_tokens.data()),
                            sample.prompt_tokens.size() * sizeof(int32_t));
  request.set_num_samples(sample.num_samples);
  *request.mutable_params() = sample.params;
  if (!sample.params.has_max_tokens()) {
    const int64_t open = model.default_max_tokens ? std::min<int64_t>(*model.default_max_tokens, room) : room;
    request.mutable_params()->set_max_tokens(static_cast<int32_t>(open));
  }
  request.set_prompt_logprobs(sample.prompt_logprobs);
  request.set_topk_prompt_logprobs(sample.topk_prompt_logprobs);
  request.set_cache_scope(user.str());
  return request;
}

int64_t sample_cost(const config::ModelConfig& model, const worker::v1::SampleRequest& request) {
  const auto prompt = static_cast<int64_t>(request.prompt_tokens().size() / sizeof(int32_t));
  const int64_t room = std::max<int64_t>(model.max_model_len - prompt, 1);
  const int64_t output =
      request.params().has_max_tokens() ? std::min<int64_t>(request.params().max_tokens(), room) : room;
  const bool has_rows = request.prompt_logprobs() || request.topk_prompt_logprobs() > 0;
  return prompt * (has_rows ? kRowCost : 1) + request.num_samples() * output;
}

int64_t answer_bytes_max(const worker::v1::SampleRequest& request) {
  const auto prompt = static_cast<int64_t>(request.prompt_tokens().size() / sizeof(int32_t));
  const int64_t output = request.num_samples() * static_cast<int64_t>(request.params().max_tokens());
  int64_t bytes = kSequenceBytes * (1 + request.num_samples()) + output * kTokenBytes * (1 + request.topk_logprobs());
  if (request.prompt_logprobs() || request.topk_prompt_logprobs() > 0) bytes += prompt * kLogprobBytes;
  return bytes + prompt * request.topk_prompt_logprobs() * kTokenBytes;
}

}  // namespace tuft::control
