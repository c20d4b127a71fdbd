// Tests of the endpoints over a real socket.
#include <limits>

#include "api/tests/bodies.h"
#include "api/tests/test_client.h"

namespace tuft::api {
namespace {

using control::OperationType;

class Routes : public ServerTest {
 protected:
  void SetUp() override { start(); }

  Reply retrieve(const std::string& id, const Headers& headers = {}) {
    return post("retrieve_future", R"({"request_id":")" + id + R"(","allow_metadata_only":true})", headers);
  }
};

std::string pass_bytes() {
  tinker_public::ForwardBackwardRequest request;
  request.set_model_id("s:train:0");
  request.set_seq_id(3);
  request.set_loss_fn("cross_entropy");
  request.add_data();
  return request.SerializeAsString();
}

TEST_F(Routes, OnlyHealthzIsOpenWithoutAKey) {
  EXPECT_EQ(call("GET", "/api/v1/healthz", "", {{"X-API-Key", ""}}).body,
            R"({"status":"ok","ready":true,"role":"leader"})");
  expect_refusal(call("GET", "/api/v1/get_server_capabilities", "", {{"X-API-Key", ""}}), 401, "X-API-Key");
  expect_refusal(call("GET", "/api/v1/get_server_capabilities", "", {{"X-API-Key", "tml-eve"}}), 403, "not known");
  // OpenAI's clients expect 401 for both.
  for (const char* key : {"", "Bearer tml-eve"}) {
    const Reply reply = call("GET", "/oai/api/v1/models", "", {{"X-API-Key", ""}, {"Authorization", key}});
    EXPECT_EQ(reply.status, 401);
    EXPECT_NE(reply.body.find(R"("type":"authentication_error","param":null,"code":"invalid_api_key")"),
              std::string::npos)
        << reply.body;
  }
  const Reply reply = call("GET", "/api/v1/get_server_capabilities?x=1");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.body, R"({"supported_models":[{"model_name":"base/model","max_context_length":2048,)"
                        R"("capabilities":["training","sampling"],"trainable":true,"sampleable":true}]})");
}

TEST_F(Routes, KeyIsCheckedBeforeTheBody) {
  expect_refusal(post("optim_step", "{broken", {{"X-API-Key", ""}}), 401, "X-API-Key");
  expect_refusal(post("optim_step", "{broken", {{"X-API-Key", "nope"}}), 403, "key");
}

TEST_F(Routes, UnknownPathAndWrongMethodAreJson) {
  expect_refusal(call("GET", "/nowhere"), 404, "endpoint");
  expect_refusal(post("no_such_thing", "{}"), 404, "no endpoint /api/v1/no_such_thing;");
  expect_refusal(call("GET", "/api/v1/%22quoted%22"), 404, "no such endpoint");
  expect_refusal(post("no/such/thing?x=1", "{}"), 404, "no endpoint /api/v1/no/such/thing;");
  const Reply reply = call("GET", "/api/v1/asample");
  expect_refusal(reply, 405, "POST");
  EXPECT_EQ(reply.headers.at("allow"), "POST");
  EXPECT_EQ(call("DELETE", "/api/v1/samplers/x").headers.at("allow"), "GET, HEAD");
}

TEST_F(Routes, HeadIsGetWithoutItsBody) {
  for (const char* target : {"/api/v1/healthz", "/api/v1/get_server_capabilities", "/docs", "/api/v1/training_runs"}) {
    const Reply reply = call("GET", target);
    TestClient client(server->port());
    // The next answer follows at once if there is no body.
    client.send(request_text("HEAD", target, "") + request_text("GET", "/api/v1/healthz", ""));
    const std::string head = client.read_until("\r\n\r\n");
    EXPECT_EQ(head.find("HTTP/1.1 200 "), 0U) << target;
    EXPECT_NE(head.find("Content-Length: " + reply.headers.at("content-length") + "\r\n"), std::string::npos) << head;
    EXPECT_EQ(client.read_reply().body, R"({"status":"ok","ready":true,"role":"leader"})") << target;
  }
  TestClient client(server->port());
  client.send(request_text("HEAD", "/api/v1/asample", ""));
  EXPECT_EQ(client.read_until("\r\n\r\n").find("HTTP/1.1 405 "), 0U);
}

TEST_F(Routes, AbsoluteTargetsAreAccepted) {
  EXPECT_EQ(call("GET", "http://tuft.example:10610/api/v1/healthz").body,
            R"({"status":"ok","ready":true,"role":"leader"})");
  EXPECT_EQ(call("GET", "HTTPS://tuft.example/api/v1/sessions?limit=5").status, 200);
  EXPECT_EQ(call("GET", "ftp://tuft.example/api/v1/healthz").status, 404);
  const Reply root = call("GET", "http://tuft.example");
  EXPECT_EQ(root.status, 307);
  EXPECT_EQ(root.headers.at("location"), "http://tuft.example/console");
}

// A proxy in front of the server may have checked the other one.
TEST_F(Routes, RepeatedCredentialsAreRefused) {
  for (const char* name : {"X-API-Key", "x-api-key", "Authorization", "Host"}) {
    TestClient client(server->port());
    std::string text =
        request_text("GET", "/api/v1/get_server_capabilities", "", {{"Authorization", "Bearer tml-bob"}});
    text.insert(text.find("\r\n") + 2, std::string(name) + ": tml-bob\r\n");
    client.send(text);
    expect_refusal(client.read_reply(), 400, "comes twice");
  }
}

TEST_F(Routes, ClientConfigEnablesParallelChunks) {
  const Reply reply = post("client/config", R"({"sdk_version":"0.25.0"})");
  EXPECT_EQ(reply.status, 200);
  EXPECT_NE(reply.body.find(R"("parallel_fwdbwd_chunks":true)"), std::string::npos);
  EXPECT_NE(reply.body.find(R"("proto_compress_fwdbwd":true)"), std::string::npos);
  EXPECT_NE(reply.body.find(R"("custom_loss_server_side":true)"), std::string::npos);
  EXPECT_EQ(post("client/dynamic_config", "{}").body, R"({"refresh_interval_sec":300,"sample_cancel_enabled":true})");
}

TEST_F(Routes, SessionOfOneUserIsUnknownToAnother) {
  const Reply reply = post("create_session",
                           R"({"tags":["a"],"user_metadata":{"k":"v","n":3,"x":null},"sdk_version":"0.25.0",)"
                           R"("unknown":{"deep":[1,{}]},"type":"create_session"})",
                           {{"X-Idempotency-Key", "stainless-1"}});
  EXPECT_EQ(reply.body, R"({"type":"create_session","session_id":"s-alice"})");
  EXPECT_EQ(control.last_session.tags, std::vector<std::string>{"a"});
  EXPECT_EQ(control.last_session.user_metadata, (std::map<std::string, std::string>{{"k", "v"}, {"n", "3"}}));
  EXPECT_EQ(control.last_session.idempotency_key, "stainless-1");
  EXPECT_EQ(post("session_heartbeat", R"({"session_id":"s-alice"})").status, 200);
  expect_refusal(post("session_heartbeat", R"({"session_id":"s-alice"})", {{"X-API-Key", "tml-bob"}}), 404, "session");
}

TEST_F(Routes, CreateModelPassesItsConfigAndTrace) {
  const Reply reply = post("create_model",
                           R"({"session_id":"s","model_seq_id":0,"base_model":"base/model","lora_config":)"
                           R"({"rank":8,"seed":18446744073709551615,"train_mlp":false}})",
                           {{"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}});
  EXPECT_EQ(reply.body, R"({"request_id":"r1","model_id":"s:train:0"})");
  EXPECT_EQ(control.last_model.lora.rank, 8);
  EXPECT_EQ(control.last_model.lora.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_FALSE(control.last_model.lora.train_mlp);
  EXPECT_TRUE(control.last_model.lora.train_attn);
}

TEST_F(Routes, MissingAndWrongFieldsAreNamed) {
  const Reply reply = post("create_model", R"({"model_seq_id":"x","lora_config":{"rank":0,"train_mlp":1}})");
  for (const char* part : {"session_id: is required", "model_seq_id: must be an integer of at least 0",
                           "base_model: is required", "lora_config.rank: must be", "lora_config.train_mlp: must be"}) {
    expect_refusal(reply, 422, part);
  }
  expect_refusal(post("get_info", R"({"model_id":"../x"})"), 422, "model_id: must be an id");
  expect_refusal(post("get_info", "[1]"), 422, "must be a JSON object");
  expect_refusal(post("get_info", ""), 422, "empty");
  expect_refusal(post("get_info", R"({"model_id":"a"})"
                                  "}"),
                 422, "not valid JSON");
  expect_refusal(post("get_info", "{\"model_id\":\"\xff\"}"), 422, "not valid JSON");
  expect_refusal(post("optim_step", R"({"model_id":"m","adam_params":{"learning_rate":NaN}})"), 422, "JSON");
  EXPECT_TRUE(control.calls.empty());
}

TEST_F(Routes, CreateCustomLossPassesTheGraphAsText) {
  const std::string start = R"({"session_id":"s","custom_loss_seq_id":2,"name":"f","type":"create_custom_loss",)";
  const Reply reply =
      post("create_custom_loss", start + R"("inputs":[{"name":"logprobs","rank":1},{"name":"tau","rank":0}],)"
                                         R"("graph":{"format": 1, "nodes":[0.8, 2.0, "x"]}})");
  EXPECT_EQ(reply.body, R"({"request_id":"r1","model_id":null})");
  EXPECT_EQ(control.last_custom_loss.session.str(), "s");
  EXPECT_EQ(control.last_custom_loss.custom_loss_seq_id, 2);
  ASSERT_EQ(control.last_custom_loss.inputs.size(), 2U);
  EXPECT_EQ(control.last_custom_loss.inputs[1].name, "tau");
  EXPECT_EQ(control.last_custom_loss.inputs[1].rank, 0);
  EXPECT_EQ(control.last_custom_loss.graph, R"({"format":1,"nodes":[0.8,2.0,"x"]})");
  control.finish_with("r1", OperationType::kCreateCustomLoss, control::CreateCustomLossResult{"s:loss:2"});
  EXPECT_EQ(retrieve("r1").body, R"({"type":"create_custom_loss","loss_id":"s:loss:2"})");
  expect_refusal(post("create_custom_loss", start + R"("inputs":[{"name":"logprobs","rank":3}]})"), 422,
                 "inputs[0].rank");
  expect_refusal(post("create_custom_loss", start + R"("inputs":[],"graph":{},"new_field":1})"), 400,
                 "new_field: is not a field");
}

TEST_F(Routes, OptimStepTakesIntegersAsNumbersAndKeepsDefaults) {
  EXPECT_EQ(post("optim_step", R"({"model_id":"m","seq_id":2.0,"adam_params":{"learning_rate":1,"beta1":0.5}})").status,
            200);
  EXPECT_EQ(control.last_optim.seq_id, 2);
  EXPECT_EQ(control.last_optim.learning_rate, 1.0);
  EXPECT_EQ(control.last_optim.beta1, 0.5);
  EXPECT_EQ(control.last_optim.beta2, 0.95);
}

TEST_F(Routes, ControlErrorsHaveTheirStatus) {
  const std::pair<ErrorCode, int> expected[] = {
      {ErrorCode::kInvalidArgument, 400},  {ErrorCode::kNotFound, 404},          {ErrorCode::kAlreadyExists, 400},
      {ErrorCode::kPermissionDenied, 403}, {ErrorCode::kResourceExhausted, 429}, {ErrorCode::kUnavailable, 503}};
  for (const auto& [code, status] : expected) {
    control.next_failure = Error{code, "the \"reason\"\n", ""};
    expect_refusal(post("optim_step", R"({"model_id":"m","adam_params":{}})"), status, R"(the \"reason\"\n)");
  }
  control.next_failure = internal_error("/secret/path broke");
  const Reply reply = post("optim_step", R"({"model_id":"m","adam_params":{}})");
  expect_refusal(reply, 500, "log");
  EXPECT_EQ(reply.body.find("secret"), std::string::npos);
}

TEST_F(Routes, GetInfoAndSamplersAnswerDirectly) {
  EXPECT_EQ(
      post("get_info", R"({"model_id":"s:train:0"})").body,
      R"({"model_id":"s:train:0","model_data":{"arch":"llama","model_name":"base/model","tokenizer_id":)"
      R"("base/model"},"is_lora":true,"lora_rank":8,"model_name":"base/model","optimizer_config":{"type":"adamw"}})");
  EXPECT_EQ(call("GET", "/api/v1/samplers/s%3Asample:0").body,
            R"({"sampler_id":"s:sample:0","base_model":"base/model","model_path":null})");
  expect_refusal(call("GET", "/api/v1/samplers/other"), 404, "sampler");
  expect_refusal(call("GET", "/api/v1/samplers/a%2Fb"), 404, "endpoint");
}

TEST_F(Routes, WeightsInfoDescribesTheCheckpoint) {
  EXPECT_EQ(post("weights_info", R"({"tinker_path":"tinker://r/weights/a"})").body,
            R"({"base_model":"base/model","is_lora":true,"lora_rank":8,"train_unembed":true,"train_mlp":false,)"
            R"("train_attn":true})");
  expect_refusal(post("weights_info", R"({"tinker_path":"tinker://r/weights/b"})"), 404, "checkpoint");
}

// ---- forward_backward

TEST_F(Routes, ForwardBackwardReadsProtobufPlainAndZstd) {
  EXPECT_EQ(post("forward_backward", pass_bytes(), kProtobufHeaders).body,
            R"({"request_id":"r1","model_id":"s:train:0"})");
  Headers packed = kProtobufHeaders;
  packed["Content-Encoding"] = "zstd";
  EXPECT_EQ(post("forward_backward", zstd(pass_bytes()), packed).status, 200);
  EXPECT_EQ(control.last_pass.SerializeAsString(), pass_bytes());
}

TEST_F(Routes, ForwardBackwardRefusesInvalidBodies) {
  expect_refusal(post("forward_backward", pass_bytes(), {{"Content-Type", "text/plain"}}), 415, "Content-Type");
  expect_refusal(post("forward_backward", pass_bytes()), 415, "Content-Type");
  Headers gzip = kProtobufHeaders;
  gzip["Content-Encoding"] = "gzip";
  expect_refusal(post("forward_backward", pass_bytes(), gzip), 415, "Content-Encoding");
  const std::string whole = pass_bytes();
  expect_refusal(post("forward_backward", whole.substr(0, whole.size() - 1), kProtobufHeaders), 400, "truncated");
  expect_refusal(post("forward_backward", "\xff\xff\xff", kProtobufHeaders), 400, "truncated");
  expect_refusal(post("forward_backward", "", kProtobufHeaders), 422, "model_id");
  Headers packed = kProtobufHeaders;
  packed["Content-Encoding"] = "zstd";
  expect_refusal(post("forward_backward", pass_bytes(), packed), 400, "zstd");
  const std::string frame = zstd(std::string(100'000, 'x') + pass_bytes());
  expect_refusal(post("forward_backward", frame.substr(0, frame.size() - 3), packed), 400, "zstd");
  expect_refusal(post("forward_backward", "", packed), 400, "zstd");
}

TEST_F(Routes, ForwardBackwardReadsTheJsonOfOlderClients) {
  const char* body =
      R"({"forward_backward_input":{"data":[{"model_input":{"chunks":[{"type":"encoded_text","tokens":[5,6]}]},)"
      R"("loss_fn_inputs":{"target_tokens":{"data":[6,7],"dtype":"int64","shape":[2]},)"
      R"("weights":{"data":[1,0.5],"dtype":"float32"}}}],"loss_fn":"cross_entropy"},"model_id":"s:train:0","seq_id":4})";
  EXPECT_EQ(post("forward_backward", body, {{"Content-Type", "application/json; charset=utf-8"}}).status, 200);
  const tinker_public::ForwardBackwardRequest& request = control.last_pass;
  EXPECT_EQ(request.seq_id(), 4);
  ASSERT_EQ(request.data_size(), 1);
  EXPECT_EQ(request.data(0).model_input(0).encoded_text().tokens(), bytes_of<int32_t>({5, 6}));
  EXPECT_EQ(request.data(0).loss_fn_inputs().at("target_tokens").dense(), bytes_of<int64_t>({6, 7}));
  EXPECT_EQ(request.data(0).loss_fn_inputs().at("weights").dense(), bytes_of<float>({1.0F, 0.5F}));
  EXPECT_EQ(request.data(0).loss_fn_inputs().at("weights").dtype(), tinker_public::DTYPE_FLOAT32);
  expect_refusal(post("forward_backward", R"({"model_id":"m","forward_backward_input":{"data":[{}]}})",
                      {{"Content-Type", "application/json"}}),
                 422, "forward_backward_input.data[0].model_input: is required");
}

TEST_F(Routes, ExternalSavesReadTheirRecipients) {
  EXPECT_EQ(post("save_weights_external", R"({"model_id":"m","path":"a","seq_id":9,"ttl_seconds":3600,)"
                                          R"("age_encryption_recipients":["age1x"],"type":"save_weights_external"})")
                .status,
            200);
  EXPECT_EQ(control.last_external_save.name, "a");
  EXPECT_EQ(control.last_external_save.age_recipients, std::vector<std::string>{"age1x"});
  EXPECT_EQ(post("save_weights_external", R"({"model_id":"m","path":"a"})").status, 200);
  EXPECT_FALSE(control.last_external_save.age_recipients.has_value());
  expect_refusal(post("save_weights_external", R"({"model_id":"m"})"), 422, "path");
  expect_refusal(post("save_weights_external", R"({"model_id":"m","path":"a","overwrite":true})"), 400, "overwrite");
  expect_refusal(post("save_weights_external", R"({"model_id":"m","path":"a","age_encryption_recipients":[")" +
                                                   std::string(20'000, 'a') + R"("]})"),
                 422, "age_encryption_recipients");
}

// ---- futures

TEST_F(Routes, FuturesOfEveryOperationHaveTheirJson) {
  struct Case {
    OperationType operation;
    control::FutureValue value;
    const char* json;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const control::RunId run("s:train:0");
  const Case cases[] = {
      {OperationType::kCreateModel, control::CreateModelResult{run},
       R"({"type":"create_model","model_id":"s:train:0"})"},
      {OperationType::kUnloadModel, control::UnloadModelResult{run},
       R"({"type":"unload_model","model_id":"s:train:0"})"},
      {OperationType::kOptimStep, control::OptimStepResult{{{"bad", nan}, {"grad_norm", 0.5}, {"step", 3}}},
       R"({"metrics":{"grad_norm":0.5,"step":3}})"},
      {OperationType::kSaveWeights, control::SaveWeightsResult{"tinker://r/weights/a"},
       R"({"type":"save_weights","path":"tinker://r/weights/a"})"},
      {OperationType::kSaveWeightsForSampler,
       control::SaveWeightsForSamplerResult{std::nullopt, control::SamplerId("s:sample:0")},
       R"({"type":"save_weights_for_sampler","sampling_session_id":"s:sample:0"})"},
      {OperationType::kSaveWeightsExternal, control::SaveWeightsExternalResult{"tinker://r/external_weights/a", 10},
       R"({"type":"save_weights_external","path":"tinker://r/external_weights/a","size_bytes":10})"},
      {OperationType::kLoadWeights, control::LoadWeightsResult{"tinker://r/weights/a", run},
       R"({"type":"load_weights","path":"tinker://r/weights/a","model_id":"s:train:0"})"},
  };
  int number = 0;
  for (const Case& one : cases) {
    ASSERT_EQ(post("optim_step", R"({"model_id":"m","adam_params":{}})").status, 200);
    const std::string id = "r" + std::to_string(++number);
    control.finish_with(id, one.operation, one.value);
    const Reply reply = retrieve(id);
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, one.json);
    EXPECT_EQ(retrieve(id).body, one.json) << "a result can be fetched again";
  }
}

TEST_F(Routes, SampleIsProtobufOnRequestElseJson) {
  tinker_public::SampleResponse sample;
  auto* sequence = sample.add_sequences();
  sequence->set_stop_reason(tinker_public::STOP_REASON_LENGTH);
  sequence->set_tokens(bytes_of<int32_t>({4, -1}));
  sequence->set_logprobs(bytes_of<float>({-0.5F, -1.25F}));
  sample.set_prompt_logprobs(bytes_of<float>({std::numeric_limits<float>::quiet_NaN(), -2.0F}));
  auto* topk = sample.mutable_topk_prompt_logprobs();
  topk->set_k(2);
  topk->set_length(2);
  topk->set_token_ids(bytes_of<int32_t>({0, 0, 7, 0}));
  topk->set_logprobs(bytes_of<float>({-99999.0F, -99999.0F, -0.5F, -99999.0F}));
  ASSERT_EQ(post("optim_step", R"({"model_id":"m","adam_params":{}})").status, 200);
  control.finish_with("r1", OperationType::kSample, control::ProtobufResult{sample.SerializeAsString()});

  const Reply binary = retrieve("r1", {{"Accept", "application/x-protobuf, application/json"}});
  EXPECT_EQ(binary.headers.at("content-type"), "application/x-protobuf");
  EXPECT_EQ(binary.body, sample.SerializeAsString());
  const Reply json = retrieve("r1", {{"Accept", "application/json"}});
  EXPECT_EQ(json.headers.at("content-type"), "application/json");
  EXPECT_EQ(json.body,
            R"({"type":"sample","sequences":[{"stop_reason":"length","tokens":[4,-1],"logprobs":[-0.5,-1.25]}],)"
            R"("prompt_logprobs":[null,-2],"topk_prompt_logprobs":[null,[[7,-0.5]]],"prompt_cache_hit_tokens":0})");
}

TEST_F(Routes, PassIsJsonForOlderClients) {
  tinker_public::ForwardBackwardOutput output;
  output.set_loss_fn_output_type("ArrayRecord");
  auto* record = output.add_loss_fn_outputs();
  record->set_num_datums(2);
  auto& field = (*record->mutable_fields())["logprobs"];
  field.set_dtype(tinker_public::DTYPE_FLOAT32);
  field.set_data(bytes_of<float>({-1.0F, -2.0F, -3.0F}));
  field.set_offsets(bytes_of<int64_t>({0, 4, 12}));
  (*output.mutable_metrics())["loss:sum"] = 6.0;
  ASSERT_EQ(post("optim_step", R"({"model_id":"m","adam_params":{}})").status, 200);
  control.finish_with("r1", OperationType::kForward, control::ProtobufResult{output.SerializeAsString()});
  EXPECT_EQ(retrieve("r1").body,
            R"({"loss_fn_output_type":"ArrayRecord","loss_fn_outputs":[{"logprobs":{"data":[-1],"dtype":"float32",)"
            R"("shape":[1]}},{"logprobs":{"data":[-2,-3],"dtype":"float32","shape":[2]}}],"metrics":{"loss:sum":6}})");
}

TEST_F(Routes, FailedFutureIsAnsweredWithACategory) {
  ASSERT_EQ(post("optim_step", R"({"model_id":"m","adam_params":{}})").status, 200);
  control.fail_with("r1", invalid_argument("rank 3 is not supported"));
  const Reply reply = retrieve("r1", {{"Accept", "application/x-protobuf"}});
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("content-type"), "application/json");
  EXPECT_EQ(reply.body, R"({"error":"rank 3 is not supported","category":"user"})");
  ASSERT_EQ(post("optim_step", R"({"model_id":"m","adam_params":{}})").status, 200);
  control.fail_with("r2", unavailable("the worker restarted"));
  EXPECT_EQ(retrieve("r2").body, R"({"error":"the worker restarted","category":"server"})");
}

TEST_F(Routes, UnknownForeignAndEvictedFuturesAreErrors) {
  ASSERT_EQ(post("optim_step", R"({"model_id":"m","adam_params":{}})").status, 200);
  control.finish_with("r1", OperationType::kOptimStep, control::OptimStepResult{});
  expect_refusal(retrieve("r1", {{"X-API-Key", "tml-bob"}}), 404, "future");
  EXPECT_EQ(retrieve("r1", {{"X-API-Key", "tml-alice-2"}}).status, 200);
  expect_refusal(retrieve("r99"), 404, "future");
  expect_refusal(retrieve("evicted"), 410, "dropped");
  expect_refusal(retrieve("a b"), 422, "request_id");
}

// ---- client telemetry

TEST_F(Routes, TelemetryIsAlwaysAccepted) {
  const std::string accepted = R"({"status":"accepted"})";
  EXPECT_EQ(post("telemetry",
                 R"({"events":[{"event":"SESSION_START","severity":"INFO"},{"event":"GENERIC_EVENT","event_name":"x",)"
                 R"("event_data":{"headers":{"X-API-Key":"tml-secret"}}},{"event":"UNHANDLED_EXCEPTION",)"
                 R"("error_type":"ValueError","error_message":"a prompt","traceback":"t","severity":"CRITICAL"}],)"
                 R"("session_id":"s","sdk_version":"0.25.0"})")
                .body,
            accepted);
  EXPECT_EQ(post("telemetry", "{broken").body, accepted);
  EXPECT_EQ(post("telemetry", R"({"events":[1,2]})").body, accepted);
  expect_refusal(post("telemetry", "{}", {{"X-API-Key", ""}}), 401, "X-API-Key");
}

}  // namespace
}  // namespace tuft::api
