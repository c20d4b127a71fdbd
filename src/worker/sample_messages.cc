#include "worker/sample_messages.h"

#include <algorithm>
#include <string>
#include <utility>

#include "worker/packed_numbers.h"

namespace tuft::worker {
namespace {

// Returns the begin of each row in the tokens, and the end of the last one.
Result<std::vector<size_t>> row_begins(const v1::PromptTargets& targets, size_t rows, size_t cells) {
  std::vector<size_t> begins;
  begins.reserve(rows + 1);
  if (targets.crow_indices().empty()) {
    const auto columns = static_cast<size_t>(targets.columns());
    if (targets.columns() < 1 || columns > cells || rows * columns != cells) {
      return invalid_argument("target_prompt_logprobs has not as many values as cells", "malformed_tensor");
    }
    for (size_t row = 0; row <= rows; ++row) begins.push_back(row * columns);
    return begins;
  }
  for (const int64_t begin : read_numbers<int64_t>(targets.crow_indices()))
    begins.push_back(static_cast<size_t>(begin));
  return begins;
}

Status read_targets(const v1::SampleRequest& request, engine::SampleRequest& result) {
  const v1::PromptTargets& targets = request.prompt_targets();
  result.prompt_targets.tokens = read_numbers<int32_t>(targets.tokens());
  const size_t rows = result.prompt.empty() ? 0 : result.prompt.size() - 1;
  TUFT_ASSIGN(result.prompt_targets.row_begins, row_begins(targets, rows, result.prompt_targets.tokens.size()));
  return {};
}

}  // namespace

Result<engine::SampleRequest> to_sample_request(const v1::SampleRequest& request,
                                                std::optional<engine::AdapterId> sampler) {
  if (request.prompt_tokens().size() % 4 != 0) {
    return invalid_argument("prompt has " + std::to_string(request.prompt_tokens().size()) +
                                " bytes, which is not a whole number of i32 tokens",
                            "malformed_tokens");
  }
  engine::SampleRequest result;
  result.adapter = std::move(sampler);
  result.scope = request.cache_scope();
  result.prompt = read_numbers<int32_t>(request.prompt_tokens());
  result.num_samples = request.num_samples();
  result.prompt_logprobs = request.prompt_logprobs();
  result.topk_prompt_logprobs = request.topk_prompt_logprobs();
  result.topk_logprobs = request.topk_logprobs();
  result.prompt_logprobs_last_n = request.prompt_logprobs_last_n();
  result.prompt_alt_tokens = request.prompt_alt_tokens();
  if (request.has_prompt_targets()) TUFT_TRY(read_targets(request, result));
  const tinker_public::SamplingParams& params = request.params();
  if (params.has_max_tokens()) result.params.max_tokens = params.max_tokens();
  if (params.has_seed()) result.params.seed = params.seed();
  if (params.has_temperature()) result.params.temperature = params.temperature();
  if (params.has_top_k()) result.params.top_k = params.top_k();
  if (params.has_top_p()) result.params.top_p = params.top_p();
  result.params.stop_strings.assign(params.stop_strs().values().begin(), params.stop_strs().values().end());
  result.params.stop_tokens.assign(params.stop_tokens().values().begin(), params.stop_tokens().values().end());
  const bool has_empty_list = params.stop_case() != tinker_public::SamplingParams::STOP_NOT_SET &&
                              result.params.stop_strings.empty() && result.params.stop_tokens.empty();
  result.params.ends_at_eos = !has_empty_list;
  return result;
}

void append_tokens(std::span<const int32_t> tokens, std::span<const float> logprobs,
                   std::span<const std::vector<engine::TokenLogprob>> topk, v1::SampleTokens* message) {
  const auto append = [](std::string* bytes, const auto* data, size_t count) {
    bytes->append(reinterpret_cast<const char*>(data), count * sizeof(*data));
  };
  append(message->mutable_tokens(), tokens.data(), tokens.size());
  append(message->mutable_logprobs(), logprobs.data(), logprobs.size());
  for (const auto& row : topk) {
    message->set_topk(static_cast<int32_t>(row.size()));
    for (const engine::TokenLogprob& cell : row) {
      append(message->mutable_topk_tokens(), &cell.token, 1);
      append(message->mutable_topk_logprobs(), &cell.logprob, 1);
    }
  }
}

AnswerForm answer_form(const v1::SampleRequest& request, bool is_stream) {
  AnswerForm form;
  form.prompt_tokens = static_cast<int64_t>(request.prompt_tokens().size() / sizeof(int32_t));
  form.topk_prompt_logprobs = request.topk_prompt_logprobs();
  form.topk_logprobs = is_stream ? 0 : request.topk_logprobs();
  form.prompt_alt_tokens = request.prompt_alt_tokens();
  form.record = request.record();
  if (!request.has_prompt_targets()) return form;
  form.targets.emplace();
  form.targets->set_columns(request.prompt_targets().columns());
  form.targets->set_crow_indices(request.prompt_targets().crow_indices());
  form.targets->set_col_indices(request.prompt_targets().col_indices());
  return form;
}

namespace {

void write_topk(const std::vector<std::vector<engine::TokenLogprob>>& rows, int topk,
                tinker_public::TopkLogprobs* message) {
  // The content of a cell without a token. Clients read a row that starts with such a cell as "none".
  constexpr int32_t kNoToken = 0;
  constexpr float kNoLogprob = -99999.0F;
  const auto columns = static_cast<size_t>(topk);
  std::vector<int32_t> tokens(rows.size() * columns, kNoToken);
  std::vector<float> logprobs(rows.size() * columns, kNoLogprob);
  for (size_t row = 0; row < rows.size(); ++row) {
    for (size_t i = 0; i < rows[row].size() && i < columns; ++i) {
      tokens[row * columns + i] = rows[row][i].token;
      logprobs[row * columns + i] = rows[row][i].logprob;
    }
  }
  message->set_token_ids(write_numbers(tokens));
  message->set_logprobs(write_numbers(logprobs));
  message->set_k(static_cast<uint32_t>(topk));
  message->set_length(static_cast<uint32_t>(rows.size()));
}

// The answer has the shape and the layout of the request.
void write_targets(const engine::SampleResult& result, const AnswerForm& form, tinker_public::Tensor* tensor) {
  tensor->set_dtype(tinker_public::DTYPE_FLOAT32);
  tensor->add_shape(form.prompt_tokens - 1);
  tensor->add_shape(form.targets->columns());
  if (form.targets->crow_indices().empty()) return tensor->set_dense(write_numbers(result.target_logprobs));
  tinker_public::SparseCsr& sparse = *tensor->mutable_sparse_csr();
  sparse.set_values(write_numbers(result.target_logprobs));
  sparse.set_crow_indices(form.targets->crow_indices());
  sparse.set_col_indices(form.targets->col_indices());
}

void write_alternatives(const engine::SampleResult& result, const AnswerForm& form,
                        tinker_public::PromptAltTokens* message) {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  tokens.reserve(result.prompt_alt_tokens.size());
  logprobs.reserve(result.prompt_alt_tokens.size());
  for (const engine::TokenLogprob& drawn : result.prompt_alt_tokens) {
    tokens.push_back(drawn.token);
    logprobs.push_back(drawn.logprob);
  }
  message->mutable_tokens()->set_dtype(tinker_public::DTYPE_INT32);
  message->mutable_tokens()->set_dense(write_numbers(tokens));
  message->mutable_logprobs()->set_dtype(tinker_public::DTYPE_FLOAT32);
  message->mutable_logprobs()->set_dense(write_numbers(logprobs));
  for (tinker_public::Tensor* tensor : {message->mutable_tokens(), message->mutable_logprobs()}) {
    tensor->add_shape(form.prompt_tokens - 1);
    tensor->add_shape(form.prompt_alt_tokens);
  }
}

tinker_public::SampleResponse to_public(const engine::SampleResult& result, const AnswerForm& form) {
  tinker_public::SampleResponse message;
  for (const engine::SampledSequence& source : result.sequences) {
    const bool stopped = source.reason == engine::StopReason::kStop;
    tinker_public::SampledSequence& sequence = *message.add_sequences();
    sequence.set_stop_reason(stopped ? tinker_public::STOP_REASON_STOP : tinker_public::STOP_REASON_LENGTH);
    sequence.set_tokens(write_numbers(source.tokens));
    sequence.set_logprobs(write_numbers(source.logprobs));
    if (form.topk_logprobs > 0) {
      write_topk(source.topk_logprobs, form.topk_logprobs, sequence.mutable_topk_sampled_logprobs());
    }
  }
  if (!result.prompt_logprobs.empty()) message.set_prompt_logprobs(write_numbers(result.prompt_logprobs));
  if (form.topk_prompt_logprobs > 0) {
    write_topk(result.topk_prompt_logprobs, form.topk_prompt_logprobs, message.mutable_topk_prompt_logprobs());
  }
  if (form.targets) write_targets(result, form, message.mutable_target_prompt_logprobs());
  if (form.prompt_alt_tokens > 0) write_alternatives(result, form, message.mutable_prompt_alt_tokens());
  message.set_prompt_cache_hit_tokens(result.cached_tokens);
  return message;
}

}  // namespace

v1::SampleResponse to_sample_response(const engine::SampleResult& result, const AnswerForm& form) {
  v1::SampleResponse response;
  int64_t output_tokens = 0;
  for (const engine::SampledSequence& sequence : result.sequences) {
    const auto tokens = static_cast<int64_t>(sequence.tokens.size());
    response.add_sequence_tokens(tokens);
    if (sequence.reason == engine::StopReason::kStop) response.set_stopped_sequences(response.stopped_sequences() + 1);
    output_tokens += tokens;
    if (!form.record) continue;
    v1::SequenceRecord& record = *response.add_records();
    record.set_tokens(write_numbers(sequence.tokens));
    record.set_logprobs(write_numbers(sequence.logprobs));
  }
  response.set_response(to_public(result, form).SerializeAsString());
  response.set_cached_tokens(result.cached_tokens);
  response.set_preemptions(result.preemptions);
  response.set_prompt_tokens(form.prompt_tokens);
  response.set_output_tokens(output_tokens);
  response.set_queue_seconds(result.times.queue_seconds());
  response.set_prefill_seconds(result.times.prefill_seconds());
  response.set_decode_seconds(result.times.decode_seconds());
  return response;
}

}  // namespace tuft::worker
