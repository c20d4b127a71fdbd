#include "engine/sample/prompt_scores.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "engine/sample/check_request.h"

namespace tuft::engine {
namespace {

// Mixed into the seed, so that the draws for a prompt are not those of the samples.
constexpr uint64_t kDrawsOfPrompt = 0x70726f6d70742d61ULL;

bool wants_logprobs(const SampleRequest& request) {
  return request.prompt_logprobs || request.topk_prompt_logprobs > 0;
}

// Returns the first position of prompt_logprobs and topk_prompt_logprobs.
size_t first_logprob(const SampleRequest& request) {
  const size_t size = request.prompt.size();
  const auto last = static_cast<size_t>(request.prompt_logprobs_last_n);
  return last == 0 || last >= size ? 1 : size - last;
}

// Returns the first position with a target; the prompt's size if there is none.
size_t first_target(const SampleRequest& request) {
  const PromptTargets& targets = request.prompt_targets;
  const auto named =
      std::find_if(targets.tokens.begin(), targets.tokens.end(), [](int32_t token) { return token >= 0; });
  if (named == targets.tokens.end()) return request.prompt.size();
  const auto cell = static_cast<size_t>(named - targets.tokens.begin());
  const auto after = std::upper_bound(targets.row_begins.begin(), targets.row_begins.end(), cell);
  return static_cast<size_t>(after - targets.row_begins.begin());
}

Status check_targets(const SampleRequest& request, int vocab_size) {
  const PromptTargets& targets = request.prompt_targets;
  if (targets.tokens.empty()) return {};
  const std::vector<size_t>& begins = targets.row_begins;
  const bool covers = begins.size() == request.prompt.size() && begins.front() == 0 &&
                      begins.back() == targets.tokens.size() && std::is_sorted(begins.begin(), begins.end());
  if (!covers) {
    return invalid_argument("target_prompt_logprobs must have a row for each prompt position after the first");
  }
  for (size_t i = 0; i < targets.tokens.size(); ++i) {
    if (targets.tokens[i] < -1 || targets.tokens[i] >= vocab_size) {
      return invalid_argument("target_prompt_logprobs: value " + std::to_string(i) +
                                  " is not in the vocabulary (0 to " + std::to_string(vocab_size - 1) +
                                  "; -1 asks for nothing)",
                              "token_out_of_range");
    }
  }
  return {};
}

}  // namespace

Status check_prompt_scores(const SampleRequest& request, int vocab_size) {
  const int topk_max = std::min(vocab_size, kTopkLogprobsMax);
  if (request.topk_prompt_logprobs < 0 || request.topk_prompt_logprobs > topk_max) {
    return out_of_range("topk_prompt_logprobs", "0 to " + std::to_string(topk_max),
                        std::to_string(request.topk_prompt_logprobs));
  }
  if (request.prompt_logprobs_last_n < 0 ||
      (request.prompt_logprobs_last_n > 0 &&
       static_cast<size_t>(request.prompt_logprobs_last_n) >= request.prompt.size())) {
    return out_of_range("prompt_logprobs_last_n", "less than the number of prompt tokens",
                        std::to_string(request.prompt_logprobs_last_n));
  }
  if (request.prompt_alt_tokens < 0 || request.prompt_alt_tokens > kTopkLogprobsMax) {
    return out_of_range("prompt_alt_tokens_k", "0 to " + std::to_string(kTopkLogprobsMax),
                        std::to_string(request.prompt_alt_tokens));
  }
  return check_targets(request, vocab_size);
}

void begin_prompt_scores(Request& request) {
  const SampleRequest& what = request.what;
  const size_t size = what.prompt.size();
  request.first_scored = first_target(what);
  if (wants_logprobs(what)) request.first_scored = std::min(request.first_scored, first_logprob(what));
  if (what.prompt_alt_tokens > 0) request.first_scored = 1;
  request.first_scored = std::min(request.first_scored, size);
  request.rows_known = request.first_scored;
  SampleResult& result = request.result;
  if (what.prompt_logprobs) {
    result.prompt_logprobs.assign(first_logprob(what), std::numeric_limits<float>::quiet_NaN());
  }
  if (what.topk_prompt_logprobs > 0) result.topk_prompt_logprobs.resize(first_logprob(what));
  result.target_logprobs.resize(what.prompt_targets.tokens.size());
  result.prompt_alt_tokens.resize((size - 1) * static_cast<size_t>(what.prompt_alt_tokens));
}

void ask_for_scores(Request& request, size_t position, LogitsTask& task) {
  const SampleRequest& what = request.what;
  task.drawn.token = what.prompt[position];
  if (position >= first_logprob(what)) task.top = what.topk_prompt_logprobs;
  const size_t row = position - 1;
  if (!what.prompt_targets.tokens.empty()) {
    const size_t begin = what.prompt_targets.row_begins[row];
    const size_t count = what.prompt_targets.row_begins[row + 1] - begin;
    task.targets = std::span(what.prompt_targets.tokens).subspan(begin, count);
    task.target_logprobs = std::span(request.result.target_logprobs).subspan(begin, count);
  }
  if (const auto count = static_cast<size_t>(what.prompt_alt_tokens); count > 0) {
    task.draws = std::span(request.result.prompt_alt_tokens).subspan(row * count, count);
    task.draws_temperature = what.params.temperature;
    task.draws_seed = request.seed ^ kDrawsOfPrompt;
    task.draws_position = position;
  }
}

void keep_scores(Request& request, LogitsTask& task) {
  const size_t position = request.rows_known++;
  if (position < first_logprob(request.what)) return;
  if (request.what.prompt_logprobs) request.result.prompt_logprobs.push_back(task.drawn.logprob);
  if (task.top > 0) request.result.topk_prompt_logprobs.push_back(std::move(task.drawn.top));
}

}  // namespace tuft::engine
