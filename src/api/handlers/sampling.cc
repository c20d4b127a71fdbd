#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "api/handlers/handlers.h"
#include "api/json/body_shape.h"
#include "api/json/error_mapping.h"
#include "api/json/json_datum.h"
#include "api/json/json_reader.h"
#include "api/json/json_writer.h"
#include "base/id.h"
#include "control/sampling/sample_request.h"
#include "control/types/operation_keys.h"
#include "telemetry/request_trace.h"

namespace tuft::api {
namespace {

// The answer lists every sequence, so this limit on their number does not depend on the model.

// Reads a string, a list of strings or a list of token ids; the type of the first element decides. An empty list is
// not the same as none: nothing stops the sample then (docs/sampling.md). Elements are counted before they are copied:
// an empty string has three bytes in the body and more than 32 in the request.
void read_stop(const JsonFields& fields, tinker_public::SamplingParams& params) {
  constexpr std::string_view kRule = "must be a string, a list of strings, or a list of token ids";
  const auto stop = fields.value("stop");
  if (!stop) return;
  std::string_view text;
  if (stop->get_string().get(text) == simdjson::SUCCESS) {
    params.mutable_stop_strs()->add_values(std::string(text));
    return;
  }
  simdjson::dom::array items;
  if (stop->get_array().get(items) != simdjson::SUCCESS) return fields.problem("stop", kRule);
  if (items.begin() == items.end()) {
    params.mutable_stop_tokens();
    return;
  }
  const bool has_strings = (*items.begin()).is_string();
  const int most = has_strings ? control::kStopStringsMax : control::kStopTokensMax;
  if (items.size() > static_cast<size_t>(most)) {
    return fields.problem("stop", "must have at most " + std::to_string(control::kStopStringsMax) + " strings or " +
                                      std::to_string(control::kStopTokensMax) + " token ids");
  }
  if (has_strings) {
    for (const auto item : items) {
      if (item.get_string().get(text) != simdjson::SUCCESS) return fields.problem("stop", kRule);
      params.mutable_stop_strs()->add_values(std::string(text));
    }
    return;
  }
  std::vector<int32_t> tokens;
  if (!append_integers(*stop, 0, kInt32Max, tokens)) return fields.problem("stop", kRule);
  for (const int32_t token : tokens) params.mutable_stop_tokens()->add_values(token);
}

void read_sampling_params(const JsonFields& fields, tinker_public::SamplingParams& params) {
  fields.only({"max_tokens", "seed", "stop", "temperature", "top_k", "top_p"});
  fields.refuse_null({"temperature", "top_k", "top_p"});
  if (const auto max_tokens = fields.optional_integer("max_tokens", 1, kInt32Max)) {
    params.set_max_tokens(static_cast<int32_t>(*max_tokens));
  }
  if (const auto seed = fields.optional_bits("seed")) params.set_seed(*seed);
  params.set_temperature(static_cast<float>(fields.number("temperature", 1.0)));
  params.set_top_k(static_cast<int32_t>(fields.optional_integer("top_k", -1, kInt32Max).value_or(-1)));
  params.set_top_p(static_cast<float>(fields.number("top_p", 1.0)));
  read_stop(fields, params);
}

Status read_prompt(const JsonFields& prompt, std::vector<int32_t>& tokens) {
  prompt.only({"chunks"});
  TUFT_TRY(read_tokens(prompt, tokens));
  prompt.for_each_object("chunks", false, [](const JsonFields& chunk) { chunk.only({"type", "tokens"}); });
  return {};
}

// Reads a list of numbers that may be absent; nothing if it is. An empty list is wrong.
std::optional<std::vector<int32_t>> read_indices(const JsonFields& fields, std::string_view key) {
  const auto list = fields.value(key);
  if (!list) return std::nullopt;
  std::vector<int32_t> indices;
  if (!append_integers(*list, 0, kInt32Max, indices)) fields.problem(key, "must be a list of indices");
  return indices;
}

control::PromptTargets read_targets(const JsonFields& fields) {
  control::PromptTargets targets;
  fields.only({"data", "dtype", "shape", "sparse_col_indices", "sparse_crow_indices"});
  if (fields.required_string("dtype") != "int64") fields.problem("dtype", "must be int64");
  std::vector<int32_t> shape;
  const auto sizes = fields.value("shape");
  if (!sizes || !append_integers(*sizes, 0, kInt32Max, shape) || shape.size() != 2) {
    fields.problem("shape", "must be a list of two sizes");
  } else {
    targets.rows = shape[0];
    targets.columns = shape[1];
  }
  const auto data = fields.value("data");
  if (!data || !append_integers(*data, -1, kInt32Max, targets.tokens)) {
    fields.problem("data", "must be a flat list of token ids, or -1 where nothing is asked");
  }
  auto rows = read_indices(fields, "sparse_crow_indices");
  auto columns = read_indices(fields, "sparse_col_indices");
  if (rows.has_value() != columns.has_value() || (rows && rows->empty())) {
    fields.problem("sparse_crow_indices", "must come together with sparse_col_indices, and not be empty");
  }
  targets.crow_indices = std::move(rows).value_or(std::vector<int32_t>());
  targets.col_indices = std::move(columns).value_or(std::vector<int32_t>());
  return targets;
}

// Reads what is asked about the tokens of the prompt, and about alternatives to the sampled ones.
void read_scores(const JsonFields& fields, control::Sample& request) {
  const auto count = [&fields](std::string_view key) {
    return static_cast<int>(fields.optional_integer(key, 0, kInt32Max).value_or(0));
  };
  request.prompt_logprobs = fields.boolean("prompt_logprobs", false);
  request.prompt_logprobs_last_n = fields.optional_integer("prompt_logprobs_last_n", 1, kInt32Max);
  request.topk_prompt_logprobs = count("topk_prompt_logprobs");
  request.topk_sample_logprobs = count("topk_sample_logprobs");
  request.prompt_alt_tokens_k = count("prompt_alt_tokens_k");
  if (const auto targets = fields.object("target_prompt_logprobs")) {
    request.target_prompt_logprobs = read_targets(*targets);
  }
}

// Notes what is wrong with asample besides the fields that handle_asample() reads. An option that is ignored gives a
// client something else than it asked for without a word.
void check_asample_fields(const JsonFields& fields) {
  fields.only({"base_model", "model_path", "num_samples", "prompt", "prompt_alt_tokens_k", "prompt_logprobs",
               "prompt_logprobs_last_n", "record_stability_info", "sampling_params", "sampling_session_id", "seq_id",
               "target_prompt_logprobs", "topk_prompt_logprobs", "topk_sample_logprobs", "type"});
  fields.refuse_null({"num_samples", "prompt_alt_tokens_k", "topk_prompt_logprobs", "topk_sample_logprobs"});
  if (fields.string("type", "sample") != "sample") fields.problem("type", "must be sample");
  for (const std::string_view key : {"base_model", "model_path"}) {
    if (fields.has(key)) fields.problem(key, "must be absent: what is sampled from is that of the sampling session");
  }
}

// The SDK raises a 400 at once, as it stands.
Status as_bad_request(Status status) {
  if (status.ok()) return status;
  return invalid_argument(status.error().message, "invalid_sample_request");
}

}  // namespace

Result<Answer> handle_create_sampling_session(Exchange& exchange) {
  JsonBody body(exchange.body);
  const JsonFields fields = body.fields();
  control::CreateSamplingSession request;
  request.session = control::SessionId(fields.required_id("session_id"));
  request.seq_id = fields.required_integer("sampling_session_seq_id", 0, kInt64Max);
  request.base_model = fields.string("base_model", "");
  request.model_path = fields.string("model_path", "");
  fields.only({"session_id", "sampling_session_seq_id", "base_model", "model_path", "type"});
  TUFT_TRY(body_read(exchange, body.status()));

  exchange.keys.session = request.session;
  TUFT_ASSIGN(const control::SamplerId sampler,
              exchange.control.create_sampling_session(exchange.user, request, exchange.trace));
  exchange.keys.sampler = sampler;
  if (const auto info = exchange.control.get_sampler(exchange.user, sampler); info.ok()) {
    exchange.keys.base_model = info->base_model;
    exchange.keys.lora_rank = info->lora_rank;
  }
  JsonWriter json;
  json.begin_object().key("type").string("create_sampling_session");
  json.key("sampling_session_id").string(sampler.str()).end_object();
  return json_answer(std::move(json).take());
}

Result<Answer> handle_get_sampler(Exchange& exchange) {
  if (!is_id(exchange.path_parameters[0])) return not_found("there is no such sampler");
  const control::SamplerId sampler(exchange.path_parameters[0]);
  TUFT_ASSIGN(const control::SamplerInfo info, exchange.control.get_sampler(exchange.user, sampler));
  exchange.keys.sampler = sampler;
  exchange.keys.base_model = info.base_model;
  exchange.keys.lora_rank = info.lora_rank;
  JsonWriter json;
  json.begin_object().key("sampler_id").string(info.sampler.str()).key("base_model").string(info.base_model);
  json.key("model_path");
  info.model_path ? json.string(*info.model_path) : json.null();
  json.end_object();
  return json_answer(std::move(json).take());
}

// The clients of a sampler number their samples from client_counter * 10^9 on. The counter is random, so that it does
// not repeat after a restart: the probability that two of a hundred clients get the same one is one in a million. The
// largest one leaves room for 10^9 samples below 2^63.
Result<Answer> handle_join_sampling_session(Exchange& exchange) {
  JsonBody body(exchange.body);
  const JsonFields fields = body.fields();
  const control::SamplerId sampler(fields.required_id("sampling_session_id"));
  fields.only({"sampling_session_id", "type"});
  TUFT_TRY(body_read(exchange, body.status()));
  TUFT_ASSIGN(const control::SamplerInfo info, exchange.control.get_sampler(exchange.user, sampler));
  exchange.keys.sampler = info.sampler;
  exchange.keys.base_model = info.base_model;
  JsonWriter json;
  json.begin_object()
      .key("type")
      .string("join_sampling_session")
      .key("client_counter")
      .integer(1 + static_cast<int64_t>(random_u64() >> 32))
      .end_object();
  return json_answer(std::move(json).take());
}

Result<Answer> handle_asample(Exchange& exchange) {
  TUFT_TRY(admit_json(exchange));
  JsonBody body(exchange.body);
  const JsonFields fields = body.fields();
  check_asample_fields(fields);
  control::Sample request;
  request.sampler = control::SamplerId(fields.required_id("sampling_session_id"));
  request.seq_id = fields.optional_integer("seq_id", 0, kInt64Max);
  const int64_t num_samples = fields.optional_integer("num_samples", 1, control::kNumSamplesMax).value_or(1);
  request.num_samples = static_cast<int>(num_samples);
  request.record_stability_info = fields.boolean("record_stability_info", false);
  read_scores(fields, request);
  Status chunks;
  if (const auto prompt = fields.required_object("prompt")) chunks = read_prompt(*prompt, request.prompt_tokens);
  if (const auto params = fields.required_object("sampling_params")) read_sampling_params(*params, request.params);
  TUFT_TRY(body_read(exchange, chunks));
  TUFT_TRY(as_bad_request(body.status()));

  exchange.keys.sampler = request.sampler;
  exchange.memory.clear();  // the operation is charged for itself from here on
  auto stage = telemetry::start_stage(exchange.trace, telemetry::TraceSpanName::PREPROCESS, exchange.handed_at);
  request.previous = stage.context();
  TUFT_ASSIGN(const control::Submitted done,
              exchange.control.sample(exchange.user, std::move(request), exchange.trace));
  note_submission(exchange, done);
  stage.share(done.span);
  stage.end(exchange.known_at);
  JsonWriter json;
  json.begin_object().key("request_id").string(done.request.str()).key("model_id").null();
  json.key("sample_sequence_ids").begin_array();
  for (int64_t i = 0; i < num_samples; ++i) json.string(control::sequence_id(done.request, i));
  json.end_array().end_object();
  return json_answer(std::move(json).take());
}

}  // namespace tuft::api
