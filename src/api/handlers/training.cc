#include <limits>

#include "api/handlers/handlers.h"
#include "api/json/body_shape.h"
#include "api/json/error_mapping.h"
#include "api/json/json_datum.h"
#include "api/json/json_reader.h"
#include "api/json/json_writer.h"
#include "api/routing/media.h"

namespace tuft::api {
namespace {

using control::OperationType;

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

template <typename Request>
using Submission = Result<control::Submitted> (control::ControlPlane::*)(const control::UserId&, const Request&,
                                                                         const telemetry::SpanContext&);

// Reads a request with `read`, which notes problems in the fields, and submits it with `submission`.
template <typename Request>
Result<Answer> submit(Exchange& exchange, OperationType type, Request (*read)(Exchange&, const JsonFields&),
                      Submission<Request> submission) {
  JsonBody body(exchange.body);
  const Request request = read(exchange, body.fields());
  if (Status wrong = body_read(exchange, body.status()); !wrong.ok()) {
    if constexpr (requires { request.seq_id; }) {
      const control::RefusedOperation refused{request.run, type, request.seq_id, std::move(wrong).error()};
      return exchange.control.refuse(exchange.user, refused, exchange.trace);
    }
    return std::move(wrong).error();
  }
  return submitted(exchange, (exchange.control.*submission)(exchange.user, request, exchange.trace));
}

// Submits a pass, or refuses it if it was not read.
Result<Answer> submit_pass(Exchange& exchange, tinker_public::ForwardBackwardRequest request, Status read) {
  const control::RunId run(request.model_id());
  if (read.ok() && !is_id(run.str())) read = malformed_request("model_id: must be an id");
  if (Status wrong = body_read(exchange, std::move(read)); !wrong.ok()) {
    const auto type = request.forward_only() ? OperationType::kForward : OperationType::kForwardBackward;
    const control::RefusedOperation refused{run, type, request.seq_id(), std::move(wrong).error()};
    return exchange.control.refuse(exchange.user, refused, exchange.trace);
  }
  exchange.keys.run = run;
  return submitted(exchange, exchange.control.forward_backward(exchange.user, std::move(request), exchange.trace));
}

control::RunId read_run(Exchange& exchange, const JsonFields& fields) {
  exchange.keys.run = control::RunId(fields.required_id("model_id"));
  return exchange.keys.run;
}

template <typename Request>
Request read_operation(Exchange& exchange, const JsonFields& fields) {
  Request request;
  request.run = read_run(exchange, fields);
  request.seq_id = fields.optional_integer("seq_id", 0, kInt64Max);
  return request;
}

template <typename Request>
Request read_save(Exchange& exchange, const JsonFields& fields) {
  auto request = read_operation<Request>(exchange, fields);
  request.name = fields.string("path", "");
  request.ttl_seconds = fields.optional_integer("ttl_seconds", 1, kInt64Max / kSecond);
  return request;
}

template <typename Request>
Request read_new_run(Exchange& exchange, const JsonFields& fields) {
  Request request;
  request.session = control::SessionId(fields.required_id("session_id"));
  request.model_seq_id = fields.required_integer("model_seq_id", 0, kInt64Max);
  request.base_model = fields.string("base_model", "");
  request.user_metadata = fields.string_map("user_metadata");
  exchange.keys.session = request.session;
  return request;
}

control::CreateModel read_create_model(Exchange& exchange, const JsonFields& fields) {
  auto request = read_new_run<control::CreateModel>(exchange, fields);
  if (!fields.has("base_model")) fields.problem("base_model", "is required");
  if (const auto config = fields.object("lora_config")) {
    control::LoraConfig& lora = request.lora;
    lora.rank = static_cast<int>(config->optional_integer("rank", 1, kInt32Max).value_or(lora.rank));
    lora.seed = config->optional_bits("seed");
    lora.train_unembed = config->boolean("train_unembed", true);
    lora.train_mlp = config->boolean("train_mlp", true);
    lora.train_attn = config->boolean("train_attn", true);
  }
  exchange.keys.lora_rank = request.lora.rank;
  return request;
}

control::OptimStep read_optim_step(Exchange& exchange, const JsonFields& fields) {
  auto request = read_operation<control::OptimStep>(exchange, fields);
  if (const auto adam = fields.object("adam_params")) {
    request.learning_rate = adam->number("learning_rate", request.learning_rate);
    request.beta1 = adam->number("beta1", request.beta1);
    request.beta2 = adam->number("beta2", request.beta2);
    request.eps = adam->number("eps", request.eps);
    request.weight_decay = adam->number("weight_decay", request.weight_decay);
    request.grad_clip_norm = adam->number("grad_clip_norm", request.grad_clip_norm);
  }
  return request;
}

control::SaveWeights read_save_weights(Exchange& exchange, const JsonFields& fields) {
  auto request = read_save<control::SaveWeights>(exchange, fields);
  request.overwrite = fields.boolean("overwrite", false);
  return request;
}

control::SaveWeightsForSampler read_save_for_sampler(Exchange& exchange, const JsonFields& fields) {
  auto request = read_save<control::SaveWeightsForSampler>(exchange, fields);
  request.sampling_session_seq_id = fields.optional_integer("sampling_session_seq_id", 0, kInt64Max);
  return request;
}

control::LoadWeights read_load_weights(Exchange& exchange, const JsonFields& fields) {
  control::LoadWeights request;
  if (fields.has("session_id") && !fields.has("model_id")) {
    request.create = read_new_run<control::NewModel>(exchange, fields);
  } else {
    request = read_operation<control::LoadWeights>(exchange, fields);
  }
  request.path = fields.required_string("path");
  request.optimizer = fields.boolean("optimizer", false);
  request.access_token = fields.string("weights_access_token", "");
  return request;
}

// The operation is charged for itself from here on.
void release_body(Exchange& exchange) {
  std::string().swap(exchange.body);
  exchange.memory.clear();
}

}  // namespace

Result<Answer> handle_create_model(Exchange& exchange) {
  return submit(exchange, OperationType::kCreateModel, read_create_model, &control::ControlPlane::create_model);
}

Result<Answer> handle_unload_model(Exchange& exchange) {
  return submit(exchange, OperationType::kUnloadModel, read_run, &control::ControlPlane::unload_model);
}

Result<Answer> handle_optim_step(Exchange& exchange) {
  return submit(exchange, OperationType::kOptimStep, read_optim_step, &control::ControlPlane::optim_step);
}

Result<Answer> handle_save_weights(Exchange& exchange) {
  return submit(exchange, OperationType::kSaveWeights, read_save_weights, &control::ControlPlane::save_weights);
}

Result<Answer> handle_save_weights_for_sampler(Exchange& exchange) {
  return submit(exchange, OperationType::kSaveWeightsForSampler, read_save_for_sampler,
                &control::ControlPlane::save_weights_for_sampler);
}

Result<Answer> handle_load_weights(Exchange& exchange) {
  return submit(exchange, OperationType::kLoadWeights, read_load_weights, &control::ControlPlane::load_weights);
}

Result<Answer> handle_forward_backward(Exchange& exchange) {
  tinker_public::ForwardBackwardRequest request;
  Status read;
  if (media_type(exchange.headers.content_type) == MediaType::kJson) {
    TUFT_TRY(admit_json(exchange));
    read = read_forward_backward(exchange.body, PassField::kForwardBackward, request);
  } else {
    TUFT_TRY(admit_pass(exchange));
    // What was read of a damaged message proves nothing, so no number is used up.
    if (!request.ParseFromString(exchange.body)) {
      return invalid_argument("the body is not a tinker_public.ForwardBackwardRequest: it is truncated or damaged",
                              std::string(kInvalidProtobuf));
    }
  }
  release_body(exchange);
  return submit_pass(exchange, std::move(request), std::move(read));
}

Result<Answer> handle_forward(Exchange& exchange) {
  TUFT_TRY(admit_json(exchange));
  tinker_public::ForwardBackwardRequest request;
  Status read = read_forward_backward(exchange.body, PassField::kForward, request);
  release_body(exchange);
  request.set_forward_only(true);
  return submit_pass(exchange, std::move(request), std::move(read));
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

}  // namespace tuft::api
