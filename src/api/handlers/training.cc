#include <algorithm>
#include <limits>

#include "api/handlers/handlers.h"
#include "api/json/body_shape.h"
#include "api/json/error_mapping.h"
#include "api/json/json_datum.h"
#include "api/json/json_reader.h"
#include "api/json/json_writer.h"
#include "api/routing/media.h"
#include "api/routing/router.h"
#include "control/age/encryption.h"

namespace tuft::api {
namespace {

using control::OperationType;

constexpr int64_t kOptimizerVersion = 1;

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

control::RunId read_unload(Exchange& exchange, const JsonFields& fields) {
  fields.only({"model_id", "type"});
  return read_run(exchange, fields);
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
  request.user_metadata = fields.string_map("user_metadata");
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

// Returns nothing if the field is absent.
std::optional<control::Optimizer> read_optimizer_config(const JsonFields& fields) {
  const auto config = fields.object("optimizer_config");
  if (!config) return std::nullopt;
  const auto optimizer = control::find_optimizer(config->required_string("type"));
  if (!optimizer) config->problem("type", "must be adamw or dimuon, the optimizers of this server");
  config->only({"type", "version"});
  if (config->mentions("version") && config->optional_integer("version").value_or(0) != kOptimizerVersion) {
    config->problem("version", "must be 1, the version of the optimizers of this server");
  }
  return optimizer;
}

void read_dimuon_params(const JsonFields& params, control::OptimStep& request) {
  request.optimizer = control::Optimizer::kDimuon;
  params.only({"type", "learning_rate", "beta1", "grad_clip_norm"});
  request.learning_rate = params.required_number("learning_rate");
  request.beta1 = params.number("beta1", request.beta1);
  request.grad_clip_norm = std::max(0.0, params.number("grad_clip_norm", 0.0));
}

control::CreateModel read_create_model(Exchange& exchange, const JsonFields& fields) {
  auto request = read_new_run<control::CreateModel>(exchange, fields);
  if (!fields.has("base_model")) fields.problem("base_model", "is required");
  fields.only({"session_id", "model_seq_id", "base_model", "user_metadata", "lora_config", "optimizer_config", "type"});
  request.optimizer = read_optimizer_config(fields).value_or(control::Optimizer::kAdamW);
  if (const auto config = fields.object("lora_config")) {
    config->only({"rank", "seed", "train_unembed", "train_mlp", "train_attn"});
    control::LoraConfig& lora = request.lora;
    config->refuse_null({"rank"});
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
  fields.only({"model_id", "seq_id", "type", "adam_params", "optimizer_params"});
  if (fields.has("adam_params") == fields.has("optimizer_params")) {
    fields.problem("adam_params", "one of adam_params and optimizer_params is required");
  } else if (const auto params = fields.object("optimizer_params")) {
    if (params->required_string("type") != "dimuon") {
      params->problem("type",
                      "must be dimuon; the parameters of adamw are adam_params, and there is no other optimizer");
    }
    read_dimuon_params(*params, request);
  } else if (const auto adam = fields.object("adam_params")) {
    adam->only({"learning_rate", "beta1", "beta2", "eps", "weight_decay", "grad_clip_norm"});
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
  fields.only({"model_id", "path", "seq_id", "ttl_seconds", "overwrite", "user_metadata", "type"});
  auto request = read_save<control::SaveWeights>(exchange, fields);
  request.overwrite = fields.boolean("overwrite", false);
  return request;
}

control::SaveWeightsForSampler read_save_for_sampler(Exchange& exchange, const JsonFields& fields) {
  fields.only(
      {"model_id", "path", "seq_id", "ttl_seconds", "user_metadata", "type", "kind", "sampling_session_seq_id"});
  const std::string kind = fields.string("kind", "snapshot");
  if (kind != "snapshot" && kind != "inflight") fields.problem("kind", "must be snapshot or inflight");
  auto request = read_save<control::SaveWeightsForSampler>(exchange, fields);
  request.sampling_session_seq_id = fields.optional_integer("sampling_session_seq_id", 0, kInt64Max);
  request.inflight = kind == "inflight";
  if (request.inflight && !request.sampling_session_seq_id) {
    fields.problem("kind", "must be snapshot for a save with a name; inflight needs sampling_session_seq_id");
  }
  return request;
}

control::SaveWeightsExternal read_save_external(Exchange& exchange, const JsonFields& fields) {
  constexpr size_t kRecipientBytesMax = 1024;
  fields.only({"model_id", "path", "seq_id", "ttl_seconds", "user_metadata", "type", "age_encryption_recipients"});
  auto request = read_save<control::SaveWeightsExternal>(exchange, fields);
  if (!fields.has("path")) fields.problem("path", "is required");
  if (!fields.has("age_encryption_recipients")) return request;
  request.age_recipients = fields.string_list("age_encryption_recipients");
  size_t bytes = 0;
  for (const std::string& recipient : *request.age_recipients) bytes += sizeof(std::string) + recipient.size();
  if (bytes > control::age::kRecipientsMax * kRecipientBytesMax) {
    fields.problem("age_encryption_recipients", "must have 1 to 10 elements of at most 1024 bytes");
    request.age_recipients.reset();
  }
  return request;
}

control::LoadWeights read_load_weights(Exchange& exchange, const JsonFields& fields) {
  control::LoadWeights request;
  if (fields.has("session_id") && !fields.has("model_id")) {
    request.create = read_new_run<control::NewModel>(exchange, fields);
    if (fields.has("seq_id")) fields.problem("seq_id", "must be absent from a load that creates a model");
  } else {
    request = read_operation<control::LoadWeights>(exchange, fields);
  }
  request.path = fields.required_string("path");
  request.optimizer = fields.boolean("optimizer", false);
  request.access_token = fields.string("weights_access_token", "");
  fields.only({"model_id", "seq_id", "session_id", "model_seq_id", "path", "optimizer", "base_model", "user_metadata",
               "optimizer_config", "weights_access_token", "type"});
  const auto optimizer = read_optimizer_config(fields);
  if (request.create) {
    request.create->optimizer = optimizer;
  } else if (optimizer) {
    fields.problem("optimizer_config", "belongs to a load that creates a model; a model keeps its optimizer");
  }
  return request;
}

control::CreateCustomLoss read_custom_loss(Exchange& exchange, const JsonFields& fields) {
  fields.only({"session_id", "custom_loss_seq_id", "name", "inputs", "graph", "type"});
  control::CreateCustomLoss request;
  request.session = control::SessionId(fields.required_id("session_id"));
  request.custom_loss_seq_id = fields.required_integer("custom_loss_seq_id", 0, kInt64Max);
  (void)fields.string("name", "");  // a label of the client's, which changes nothing
  exchange.keys.session = request.session;
  fields.for_each_object("inputs", /*required=*/true, [&](const JsonFields& input) {
    input.only({"name", "rank"});
    request.inputs.push_back({input.required_string("name"), static_cast<int>(input.required_integer("rank", 0, 2))});
  });
  if (const auto graph = fields.value("graph")) {
    request.graph = simdjson::minify(*graph);
  } else {
    fields.problem("graph", "is required");
  }
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
  return submit(exchange, OperationType::kUnloadModel, read_unload, &control::ControlPlane::unload_model);
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

Result<Answer> handle_save_weights_external(Exchange& exchange) {
  return submit(exchange, OperationType::kSaveWeightsExternal, read_save_external,
                &control::ControlPlane::save_weights_external);
}

Result<Answer> handle_load_weights(Exchange& exchange) {
  return submit(exchange, OperationType::kLoadWeights, read_load_weights, &control::ControlPlane::load_weights);
}

Result<Answer> handle_unknown_operation(Exchange& exchange) {
  Error error = not_found(no_endpoint(exchange.path_parameters.front()));
  JsonBody body(exchange.body);
  const control::RunId run(body.fields().required_id("model_id"));
  const int64_t seq_id = body.fields().required_integer("seq_id", 0, kInt64Max);
  if (!body_read(exchange, body.status()).ok()) return error;
  exchange.keys.run = run;
  return exchange.control.refuse(exchange.user, {run, OperationType::kUnknown, seq_id, std::move(error)},
                                 exchange.trace);
}

Result<Answer> handle_create_custom_loss(Exchange& exchange) {
  return submit(exchange, OperationType::kCreateCustomLoss, read_custom_loss,
                &control::ControlPlane::create_custom_loss);
}

Result<Answer> handle_forward_backward(Exchange& exchange) {
  tinker_public::ForwardBackwardRequest request;
  Status read;
  if (media_type(exchange.headers.content_type) == MediaType::kJson) {
    TUFT_TRY(admit_json(exchange));
    read = read_forward_backward(exchange.body, PassField::kForwardBackward, request);
  } else {
    TUFT_ASSIGN(read, admit_pass(exchange));
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
  json.key("model_name").string(info.base_model).key("optimizer_config").begin_object();
  json.key("type").string(control::optimizer_name(info.optimizer));
  if (info.optimizer == control::Optimizer::kDimuon) json.key("version").integer(kOptimizerVersion);
  json.end_object().end_object();
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
