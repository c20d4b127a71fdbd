#include <limits>

#include "api/error_mapping.h"
#include "api/handlers.h"
#include "api/json_datum.h"
#include "api/json_reader.h"
#include "api/json_writer.h"
#include "api/media.h"

namespace tuft::api {
namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

control::RunId read_run(Exchange& exchange, const JsonFields& fields) {
  exchange.keys.run = control::RunId(fields.required_id("model_id"));
  return exchange.keys.run;
}

std::optional<int64_t> read_seq_id(const JsonFields& fields) {
  return fields.optional_integer("seq_id", 0, kInt64Max);
}

std::optional<int64_t> read_ttl(const JsonFields& fields) {
  return fields.optional_integer("ttl_seconds", 1, kInt64Max / kSecond);
}

control::LoraConfig read_lora(const JsonFields& fields) {
  control::LoraConfig lora;
  lora.rank = static_cast<int>(fields.optional_integer("rank", 1, kInt32Max).value_or(lora.rank));
  lora.seed = fields.optional_bits("seed");
  lora.train_unembed = fields.boolean("train_unembed", true);
  lora.train_mlp = fields.boolean("train_mlp", true);
  lora.train_attn = fields.boolean("train_attn", true);
  return lora;
}

control::NewModel read_new_model(const JsonFields& fields) {
  control::NewModel model;
  model.session = control::SessionId(fields.required_id("session_id"));
  model.model_seq_id = fields.required_integer("model_seq_id", 0, kInt64Max);
  model.base_model = fields.string("base_model", "");
  model.user_metadata = fields.string_map("user_metadata");
  return model;
}

}  // namespace

Result<Answer> handle_create_model(Exchange& exchange) {
  JsonBody body(exchange.body);
  const JsonFields fields = body.fields();
  control::CreateModel request;
  request.session = control::SessionId(fields.required_id("session_id"));
  request.model_seq_id = fields.required_integer("model_seq_id", 0, kInt64Max);
  request.base_model = fields.required_string("base_model");
  request.user_metadata = fields.string_map("user_metadata");
  if (const auto lora = fields.object("lora_config")) request.lora = read_lora(*lora);
  TUFT_TRY(body_read(exchange, body.status()));

  exchange.keys.session = request.session;
  exchange.keys.lora_rank = request.lora.rank;
  return submitted(exchange, exchange.control.create_model(exchange.user, request, exchange.trace));
}

Result<Answer> handle_get_info(Exchange& exchange) {
  JsonBody body(exchange.body);
  const control::RunId run = read_run(exchange, body.fields());
  TUFT_TRY(body_read(exchange, body.status()));

  TUFT_ASSIGN(const control::ModelInfo info, exchange.control.get_info(exchange.user, run));
  exchange.keys.base_model = info.base_model;
  exchange.keys.lora_rank = info.lora_rank;
  JsonWriter json;
  json.begin_object().key("model_id").string(info.run.str());
  json.key("model_data").begin_object();
  json.key("arch").string(info.architecture).key("model_name").string(info.base_model);
  if (!info.tokenizer_id.empty()) json.key("tokenizer_id").string(info.tokenizer_id);
  json.end_object();
  json.key("is_lora").boolean(true).key("lora_rank").integer(info.lora_rank);
  json.key("model_name").string(info.base_model).end_object();
  return json_answer(std::move(json).take());
}

Result<Answer> handle_weights_info(Exchange& exchange) {
  JsonBody body(exchange.body);
  const std::string path = body.fields().required_string("tinker_path");
  TUFT_TRY(body_read(exchange, body.status()));

  TUFT_ASSIGN(const control::WeightsInfo info, exchange.control.weights_info(exchange.user, path));
  exchange.keys.base_model = info.base_model;
  exchange.keys.lora_rank = info.lora_rank;
  JsonWriter json;
  json.begin_object().key("base_model").string(info.base_model);
  json.key("is_lora").boolean(true).key("lora_rank").integer(info.lora_rank);
  json.key("train_unembed").boolean(info.train_unembed).key("train_mlp").boolean(info.train_mlp);
  json.key("train_attn").boolean(info.train_attn).end_object();
  return json_answer(std::move(json).take());
}

Result<Answer> handle_unload_model(Exchange& exchange) {
  JsonBody body(exchange.body);
  const control::RunId run = read_run(exchange, body.fields());
  TUFT_TRY(body_read(exchange, body.status()));
  return submitted(exchange, exchange.control.unload_model(exchange.user, run, exchange.trace));
}

Result<Answer> handle_forward_backward(Exchange& exchange) {
  tinker_public::ForwardBackwardRequest request;
  if (media_type(exchange.headers.content_type) == MediaType::kJson) {
    TUFT_ASSIGN(request, read_forward_backward(exchange.body, PassField::kForwardBackward));
  } else if (!request.ParseFromString(exchange.body)) {
    return invalid_argument("the body is not a tinker_public.ForwardBackwardRequest: it is truncated or damaged",
                            std::string(kInvalidProtobuf));
  }
  std::string().swap(exchange.body);
  if (!is_id(request.model_id())) return malformed_request("model_id: must be an id");
  TUFT_TRY(body_read(exchange, {}));
  exchange.keys.run = control::RunId(request.model_id());
  return submitted(exchange, exchange.control.forward_backward(exchange.user, std::move(request), exchange.trace));
}

Result<Answer> handle_forward(Exchange& exchange) {
  TUFT_ASSIGN(tinker_public::ForwardBackwardRequest request, read_forward_backward(exchange.body, PassField::kForward));
  TUFT_TRY(body_read(exchange, {}));
  request.set_forward_only(true);
  exchange.keys.run = control::RunId(request.model_id());
  return submitted(exchange, exchange.control.forward_backward(exchange.user, std::move(request), exchange.trace));
}

Result<Answer> handle_optim_step(Exchange& exchange) {
  JsonBody body(exchange.body);
  const JsonFields fields = body.fields();
  control::OptimStep request;
  request.run = read_run(exchange, fields);
  request.seq_id = read_seq_id(fields);
  if (const auto adam = fields.object("adam_params")) {
    request.learning_rate = adam->number("learning_rate", request.learning_rate);
    request.beta1 = adam->number("beta1", request.beta1);
    request.beta2 = adam->number("beta2", request.beta2);
    request.eps = adam->number("eps", request.eps);
    request.weight_decay = adam->number("weight_decay", request.weight_decay);
    request.grad_clip_norm = adam->number("grad_clip_norm", request.grad_clip_norm);
  }
  TUFT_TRY(body_read(exchange, body.status()));
  return submitted(exchange, exchange.control.optim_step(exchange.user, request, exchange.trace));
}

Result<Answer> handle_save_weights(Exchange& exchange) {
  JsonBody body(exchange.body);
  const JsonFields fields = body.fields();
  control::SaveWeights request;
  request.run = read_run(exchange, fields);
  request.seq_id = read_seq_id(fields);
  request.name = fields.string("path", "");
  request.ttl_seconds = read_ttl(fields);
  request.overwrite = fields.boolean("overwrite", false);
  TUFT_TRY(body_read(exchange, body.status()));
  return submitted(exchange, exchange.control.save_weights(exchange.user, request, exchange.trace));
}

Result<Answer> handle_save_weights_for_sampler(Exchange& exchange) {
  JsonBody body(exchange.body);
  const JsonFields fields = body.fields();
  control::SaveWeightsForSampler request;
  request.run = read_run(exchange, fields);
  request.seq_id = read_seq_id(fields);
  request.name = fields.string("path", "");
  request.sampling_session_seq_id = fields.optional_integer("sampling_session_seq_id", 0, kInt64Max);
  request.ttl_seconds = read_ttl(fields);
  TUFT_TRY(body_read(exchange, body.status()));
  return submitted(exchange, exchange.control.save_weights_for_sampler(exchange.user, request, exchange.trace));
}

Result<Answer> handle_load_weights(Exchange& exchange) {
  JsonBody body(exchange.body);
  const JsonFields fields = body.fields();
  control::LoadWeights request;
  if (fields.has("session_id") && !fields.has("model_id")) {
    request.create = read_new_model(fields);
  } else {
    request.run = read_run(exchange, fields);
    request.seq_id = read_seq_id(fields);
  }
  request.path = fields.required_string("path");
  request.optimizer = fields.boolean("optimizer", false);
  const std::string token = fields.string("weights_access_token", "");
  TUFT_TRY(body_read(exchange, body.status()));
  if (request.create) exchange.keys.session = request.create->session;
  // One that is not known opens nothing; whether the checkpoint can be loaded without it turns out later.
  if (const auto other = exchange.control.authenticate(token); !token.empty() && other.ok())
    request.token_user = *other;
  return submitted(exchange, exchange.control.load_weights(exchange.user, request, exchange.trace));
}

}  // namespace tuft::api
