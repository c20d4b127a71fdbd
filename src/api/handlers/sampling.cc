#include <limits>

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

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();
// The answer lists every sequence, so this limit on their number does not depend on the model.
constexpr int64_t kNumSamplesMax = 1024;

// Reads a string, a list of strings or a list of token ids; the type of the first element decides. Elements are counted
// before they are copied: an empty string has three bytes in the body and more than 32 in the request.
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
  if (items.begin() == items.end()) return;
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
  if (const auto max_tokens = fields.optional_integer("max_tokens", 1, kInt32Max)) {
    params.set_max_tokens(static_cast<int32_t>(*max_tokens));
  }
  if (const auto seed = fields.optional_bits("seed")) params.set_seed(*seed);
  params.set_temperature(static_cast<float>(fields.number("temperature", 1.0)));
  params.set_top_k(static_cast<int32_t>(fields.optional_integer("top_k", -1, kInt32Max).value_or(-1)));
  params.set_top_p(static_cast<float>(fields.number("top_p", 1.0)));
  read_stop(fields, params);
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
// not repeat after a restart: the probability that two of a hundred clients get the same one is one in a million.
Result<Answer> handle_join_sampling_session(Exchange& exchange) {
  JsonBody body(exchange.body);
  const control::SamplerId sampler(body.fields().required_id("sampling_session_id"));
  TUFT_TRY(body_read(exchange, body.status()));
  TUFT_ASSIGN(const control::SamplerInfo info, exchange.control.get_sampler(exchange.user, sampler));
  exchange.keys.sampler = info.sampler;
  exchange.keys.base_model = info.base_model;
  JsonWriter json;
  json.begin_object().key("client_counter").integer(1 + static_cast<int64_t>(random_u64() >> 32)).end_object();
  return json_answer(std::move(json).take());
}

Result<Answer> handle_asample(Exchange& exchange) {
  TUFT_TRY(admit_json(exchange));
  JsonBody body(exchange.body);
  const JsonFields fields = body.fields();
  control::Sample request;
  request.sampler = control::SamplerId(fields.required_id("sampling_session_id"));
  request.seq_id = fields.optional_integer("seq_id", 0, kInt64Max);
  const int64_t num_samples = fields.optional_integer("num_samples", 1, kNumSamplesMax).value_or(1);
  request.num_samples = static_cast<int>(num_samples);
  request.prompt_logprobs = fields.boolean("prompt_logprobs", false);
  request.topk_prompt_logprobs =
      static_cast<int>(fields.optional_integer("topk_prompt_logprobs", 0, kInt32Max).value_or(0));
  Status chunks;
  if (const auto prompt = fields.required_object("prompt")) chunks = read_tokens(*prompt, request.prompt_tokens);
  if (const auto params = fields.required_object("sampling_params")) read_sampling_params(*params, request.params);
  TUFT_TRY(body_read(exchange, chunks));
  TUFT_TRY(body.status());

  exchange.keys.sampler = request.sampler;
  exchange.memory.clear();  // the operation is charged for itself from here on
  TUFT_ASSIGN(const control::Submitted done,
              exchange.control.sample(exchange.user, std::move(request), exchange.trace));
  note_submission(exchange, done);
  const telemetry::TraceStage stages[] = {
      {telemetry::TraceSpanName::PREPROCESS, exchange.handed_at, exchange.known_at, {}}};
  telemetry::report_stages(exchange.trace, stages, {}, control::KeyAttributes(exchange.keys));
  JsonWriter json;
  json.begin_object().key("request_id").string(done.request.str()).key("model_id").null();
  json.key("sample_sequence_ids").begin_array();
  for (int64_t i = 0; i < num_samples; ++i) json.string(done.request.str() + "-" + std::to_string(i));
  json.end_array().end_object();
  return json_answer(std::move(json).take());
}

}  // namespace tuft::api
