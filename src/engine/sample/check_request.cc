#include "engine/sample/check_request.h"

#include <cmath>
#include <string>

#include "engine/sample/prompt_scores.h"

namespace tuft::engine {
namespace {

Status check_stops(const SamplingParams& params, bool has_text) {
  if (params.stop_strings.size() > kStopStringsMax) {
    return out_of_range("sampling_params.stop", "at most " + std::to_string(kStopStringsMax) + " strings",
                        std::to_string(params.stop_strings.size()));
  }
  if (params.stop_tokens.size() > kStopTokensMax) {
    return out_of_range("sampling_params.stop", "at most " + std::to_string(kStopTokensMax) + " token ids",
                        std::to_string(params.stop_tokens.size()));
  }
  if (!params.stop_strings.empty() && !has_text) {
    return invalid_argument(
        "sampling_params.stop holds strings, but this base model has no tokenizer.json; give token "
        "ids instead",
        "no_tokenizer");
  }
  for (const std::string& stop : params.stop_strings) {
    if (stop.empty()) return invalid_argument("sampling_params.stop holds an empty string; leave it out");
    if (stop.size() > kStopStringBytesMax) {
      return out_of_range("sampling_params.stop",
                          "strings of at most " + std::to_string(kStopStringBytesMax) + " bytes",
                          "one of " + std::to_string(stop.size()));
    }
  }
  return {};
}

Status check_params(const SamplingParams& params, bool has_text) {
  if (params.max_tokens && *params.max_tokens < 0) {
    return out_of_range("sampling_params.max_tokens", "0 or more", std::to_string(*params.max_tokens));
  }
  if (!std::isfinite(params.temperature) || params.temperature < 0) {
    return out_of_range("sampling_params.temperature", "0 or more and finite", std::to_string(params.temperature));
  }
  if (params.top_k < -1) {
    return out_of_range("sampling_params.top_k", "-1 (off) or more", std::to_string(params.top_k));
  }
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    return out_of_range("sampling_params.top_p", "greater than 0 and at most 1", std::to_string(params.top_p));
  }
  return check_stops(params, has_text);
}

}  // namespace

Error out_of_range(const char* field, const std::string& allowed, const std::string& got) {
  return invalid_argument(std::string(field) + " must be " + allowed + ", got " + got);
}

Status check_request(const SampleRequest& request, const ModelSpec& model, const AdapterStore& adapters, int tokens_max,
                     bool has_text) {
  const int vocab_size = model.vocab_size;
  if (request.prompt.empty()) return invalid_argument("prompt is empty; it must hold at least one token");
  if (request.prompt.size() > static_cast<size_t>(tokens_max)) {
    return invalid_argument("prompt has " + std::to_string(request.prompt.size()) + " tokens, the limit is " +
                                std::to_string(tokens_max) + " (max_model_len of the base model)",
                            "prompt_too_long");
  }
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    if (request.prompt[i] < 0 || request.prompt[i] >= vocab_size) {
      return invalid_argument("prompt position " + std::to_string(i) +
                                  " holds a token id that is not in the vocabulary (0 to " +
                                  std::to_string(vocab_size - 1) + "); was it made by another model's tokenizer?",
                              "token_out_of_range");
    }
  }
  if (request.num_samples < 1 || request.num_samples > kSamplesMax) {
    return out_of_range("num_samples", "1 to " + std::to_string(kSamplesMax), std::to_string(request.num_samples));
  }
  const int topk_max = vocab_size < kTopkLogprobsMax ? vocab_size : kTopkLogprobsMax;
  if (request.topk_logprobs < 0 || request.topk_logprobs > topk_max) {
    return out_of_range("topk_logprobs", "0 to " + std::to_string(topk_max), std::to_string(request.topk_logprobs));
  }
  TUFT_TRY(check_prompt_scores(request, vocab_size));
  TUFT_TRY(check_params(request.params, has_text));
  if (request.adapter && !adapters.contains(*request.adapter)) {
    return not_found("the adapter to sample from is not loaded in this worker", "sampler_not_loaded");
  }
  return {};
}

}  // namespace tuft::engine
