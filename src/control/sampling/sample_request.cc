#include "control/sampling/sample_request.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "rpc/methods.h"

namespace tuft::control {
namespace {

// The bytes of an answer in the form of tinker_public.SampleResponse.
constexpr int64_t kLogprobBytes = sizeof(float);
constexpr int64_t kTokenBytes = sizeof(int32_t) + kLogprobBytes;  // of a token with its log-probability
constexpr int64_t kSequenceBytes = 64;                            // of a sequence and of the answer, without tokens
// The cost of a prompt token whose logits are scored, in tokens without. The worker counts the same.
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

Status check_count(const char* field, int value, int most) {
  if (value >= 0 && value <= most) return {};
  return refuse(std::string(field) + " must be between 0 (off) and " + std::to_string(most));
}

Status check_sparse(const PromptTargets& targets) {
  const std::vector<int32_t>& rows = targets.crow_indices;
  if (rows.size() != static_cast<size_t>(targets.rows) + 1 || rows.front() != 0 ||
      static_cast<size_t>(rows.back()) != targets.tokens.size() || !std::is_sorted(rows.begin(), rows.end())) {
    return refuse(
        "target_prompt_logprobs.sparse_crow_indices must rise from 0 to the number of values, with one more number "
        "than the shape has rows");
  }
  const auto is_outside = [&](int32_t column) { return column < 0 || column >= targets.columns; };
  if (targets.col_indices.size() != targets.tokens.size() ||
      std::any_of(targets.col_indices.begin(), targets.col_indices.end(), is_outside)) {
    return refuse("target_prompt_logprobs.sparse_col_indices must have a column of the shape for each value");
  }
  return {};
}

Status check_targets(const PromptTargets& targets, int64_t prompt) {
  if (targets.rows != prompt - 1) {
    return refuse("target_prompt_logprobs.shape must have " + std::to_string(prompt - 1) +
                  " rows, one for each prompt token after the first; it has " + std::to_string(targets.rows));
  }
  if (static_cast<int64_t>(targets.tokens.size()) > kTargetCellsMax) {
    return refuse("target_prompt_logprobs.data must have at most " + std::to_string(kTargetCellsMax) +
                  " values; leave cells out with a sparse tensor, or score the prompt in parts");
  }
  if (!targets.crow_indices.empty()) {
    TUFT_TRY(check_sparse(targets));
  } else if (static_cast<int64_t>(targets.tokens.size()) != targets.rows * targets.columns) {
    return refuse("target_prompt_logprobs.data must have as many values as its shape has cells");
  }
  if (std::all_of(targets.tokens.begin(), targets.tokens.end(), [](int32_t token) { return token == -1; })) {
    return refuse("target_prompt_logprobs names no token; leave it out");
  }
  return {};
}

// What is asked about the prompt, and about alternatives to the sampled tokens.
Status check_scores(const Sample& sample) {
  const auto prompt = static_cast<int64_t>(sample.prompt_tokens.size());
  TUFT_TRY(check_count("topk_prompt_logprobs", sample.topk_prompt_logprobs, kTopkLogprobsMax));
  TUFT_TRY(check_count("topk_sample_logprobs", sample.topk_sample_logprobs, kTopkLogprobsMax));
  TUFT_TRY(check_count("prompt_alt_tokens_k", sample.prompt_alt_tokens_k, kPromptAltTokensMax));
  if (sample.prompt_logprobs_last_n) {
    if (!sample.prompt_logprobs) return refuse("prompt_logprobs_last_n needs prompt_logprobs; set it to true");
    if (*sample.prompt_logprobs_last_n < 1 || *sample.prompt_logprobs_last_n >= prompt) {
      return refuse("prompt_logprobs_last_n must be at least 1 and less than the number of prompt tokens, which is " +
                    std::to_string(prompt));
    }
  }
  return sample.target_prompt_logprobs ? check_targets(*sample.target_prompt_logprobs, prompt) : Status();
}

Status check_sample(const Sample& sample) {
  if (sample.num_samples < 1 || sample.num_samples > kNumSamplesMax) {
    return refuse("num_samples must be between 1 and " + std::to_string(kNumSamplesMax));
  }
  if (sample.prompt_tokens.empty()) return refuse("prompt must have at least one token");
  if (std::any_of(sample.prompt_tokens.begin(), sample.prompt_tokens.end(), [](int32_t token) { return token < 0; })) {
    return refuse("prompt has a negative token id");
  }
  TUFT_TRY(check_scores(sample));
  return check_params(sample.params);
}

template <typename Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  static_assert(std::endian::native == std::endian::little, "numbers are little-endian on the wire");
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

void write_targets(const PromptTargets& targets, worker::v1::PromptTargets& message) {
  message.set_tokens(bytes_of(targets.tokens));
  message.set_columns(targets.columns);
  if (targets.crow_indices.empty()) return;
  message.set_crow_indices(bytes_of(std::vector<int64_t>(targets.crow_indices.begin(), targets.crow_indices.end())));
  message.set_col_indices(bytes_of(std::vector<int64_t>(targets.col_indices.begin(), targets.col_indices.end())));
}

template <typename Number>
Number value_at(const std::string& bytes, int64_t index) {
  Number number;
  std::memcpy(&number, bytes.data() + static_cast<size_t>(index) * sizeof(Number), sizeof number);
  return number;
}

int64_t prompt_size(const worker::v1::SampleRequest& request) {
  return static_cast<int64_t>(request.prompt_tokens().size() / sizeof(int32_t));
}

int64_t target_cells(const worker::v1::SampleRequest& request) {
  return static_cast<int64_t>(request.prompt_targets().tokens().size() / sizeof(int32_t));
}

// Returns the first position of the prompt with a target; the prompt's size if there is none.
int64_t first_target(const worker::v1::SampleRequest& request) {
  const worker::v1::PromptTargets& targets = request.prompt_targets();
  const int64_t cells = target_cells(request);
  int64_t cell = 0;
  while (cell < cells && value_at<int32_t>(targets.tokens(), cell) < 0) ++cell;
  if (cell == cells) return prompt_size(request);
  if (targets.crow_indices().empty()) return 1 + cell / targets.columns();
  int64_t row = 0;
  while (value_at<int64_t>(targets.crow_indices(), row + 1) <= cell) ++row;
  return 1 + row;
}

// Returns how many tokens of the prompt, from the one before the first scored position on, have logits that are scored.
int64_t scored_rows(const worker::v1::SampleRequest& request) {
  const int64_t prompt = prompt_size(request);
  int64_t first = first_target(request);
  if (request.prompt_logprobs() || request.topk_prompt_logprobs() > 0) {
    const int64_t last_n = request.prompt_logprobs_last_n();
    first = std::min(first, last_n == 0 ? 1 : prompt - last_n);
  }
  if (request.prompt_alt_tokens() > 0) first = 1;
  return first >= prompt ? 0 : prompt - first + 1;
}

// Returns what an answer can have besides its tokens and their log-probabilities.
int64_t score_bytes_max(const worker::v1::SampleRequest& request) {
  const int64_t prompt = prompt_size(request);
  const int64_t output = request.num_samples() * static_cast<int64_t>(request.params().max_tokens());
  int64_t bytes =
      output * kTokenBytes * request.topk_logprobs() + prompt * kTokenBytes * request.topk_prompt_logprobs();
  bytes += prompt * kTokenBytes * request.prompt_alt_tokens() + target_cells(request) * kLogprobBytes;
  bytes += static_cast<int64_t>(request.prompt_targets().crow_indices().size());
  bytes += static_cast<int64_t>(request.prompt_targets().col_indices().size());
  if (request.prompt_logprobs() || request.topk_prompt_logprobs() > 0) bytes += prompt * kLogprobBytes;
  if (request.record()) bytes += request.num_samples() * kSequenceBytes + output * kTokenBytes;
  return bytes;
}

}  // namespace

std::string sequence_id(const RequestId& request, int64_t index) {
  return request.str() + "-" + std::to_string(index);
}

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
  request.set_topk_logprobs(sample.topk_sample_logprobs);
  request.set_prompt_logprobs_last_n(static_cast<int32_t>(sample.prompt_logprobs_last_n.value_or(0)));
  request.set_prompt_alt_tokens(sample.prompt_alt_tokens_k);
  if (sample.target_prompt_logprobs) write_targets(*sample.target_prompt_logprobs, *request.mutable_prompt_targets());
  request.set_record(sample.record_stability_info);
  request.set_cache_scope(user.str());
  if (const int64_t bytes = score_bytes_max(request); bytes > kScoreBytesMax) {
    return refuse("the log-probabilities that this sample asks for could take " + std::to_string(bytes) +
                  " bytes, and " + std::to_string(kScoreBytesMax) +
                  " are allowed; lower topk_sample_logprobs, num_samples, max_tokens, topk_prompt_logprobs or "
                  "prompt_alt_tokens_k, or leave record_stability_info out");
  }
  if (const int64_t bytes = answer_bytes_max(request); bytes > rpc::kValueBytesMax) {
    return refuse("the answer could take " + std::to_string(bytes) + " bytes, and " +
                  std::to_string(rpc::kValueBytesMax) +
                  " are allowed; lower num_samples or max_tokens, or ask for fewer log-probabilities");
  }
  return request;
}

int64_t sample_cost(const config::ModelConfig& model, const worker::v1::SampleRequest& request) {
  const int64_t prompt = prompt_size(request);
  const int64_t room = std::max<int64_t>(model.max_model_len - prompt, 1);
  const int64_t output =
      request.params().has_max_tokens() ? std::min<int64_t>(request.params().max_tokens(), room) : room;
  return prompt + scored_rows(request) * (kRowCost - 1) + request.num_samples() * output;
}

int64_t answer_bytes_max(const worker::v1::SampleRequest& request) {
  const int64_t output = request.num_samples() * static_cast<int64_t>(request.params().max_tokens());
  return kSequenceBytes * (1 + request.num_samples()) + output * kTokenBytes + score_bytes_max(request);
}

}  // namespace tuft::control
