// Tests that nothing in a training request is ignored: it is read, or refused by name.
#include <string>
#include <utility>

#include "api/tests/bodies.h"
#include "api/tests/test_client.h"

namespace tuft::api {
namespace {

class TrainingRequests : public ServerTest {
 protected:
  void SetUp() override { start(); }

  Reply post_json(const std::string& route, const std::string& body) {
    return post(route, body, {{"Content-Type", "application/json"}});
  }
};

// Clients write NaN as null.
TEST_F(TrainingRequests, NullWhereANumberBelongsIsRefusedByName) {
  for (const char* field : {"learning_rate", "beta1", "beta2", "eps", "weight_decay", "grad_clip_norm"}) {
    expect_refusal(post("optim_step", R"({"model_id":"m","adam_params":{")" + std::string(field) + R"(":null}})"), 400,
                   "adam_params." + std::string(field) + ": must be a number; it is null");
  }
  expect_refusal(post("optim_step", R"({"model_id":"m","adam_params":null})"), 422,
                 "adam_params: one of adam_params and optimizer_params is required");
  expect_refusal(post("create_model",
                      R"({"session_id":"s","model_seq_id":0,"base_model":"base/model","lora_config":{"rank":null}})"),
                 400, "lora_config.rank");
  expect_refusal(post("optim_step", R"({"model_id":"m","seq_id":"1","adam_params":{"beta1":null}})"), 422, "seq_id");
  EXPECT_TRUE(control.calls.empty());
}

TEST_F(TrainingRequests, NullInAListOfNumbersIsRefusedByName) {
  const auto pass = [&](const std::string& tokens, const std::string& tensor) {
    return post_json("forward_backward",
                     R"({"model_id":"m","seq_id":1,"forward_backward_input":{"loss_fn":"cross_entropy","data":[{)"
                     R"("model_input":{"chunks":[{"type":"encoded_text","tokens":)" +
                         tokens + R"(}]},"loss_fn_inputs":{"weights":)" + tensor + "}}]}}");
  };
  expect_refusal(pass("[1,null]", R"({"dtype":"float32","data":[1]})"), 400, "tokens: must be a list of integers");
  expect_refusal(pass("[1]", R"({"dtype":"float32","data":[1,null]})"), 400,
                 "weights.data: must be a flat list of numbers; one of them is null");
  expect_refusal(pass("[1]", R"({"dtype":"int64","data":[null]})"), 400, "one of them is null");
  expect_refusal(pass("[1]", R"({"dtype":"float32","data":[1,"2"]})"), 422, "weights.data");
  expect_refusal(
      pass("[1]", R"({"dtype":"float32","data":[1],"sparse_crow_indices":[0,null],"sparse_col_indices":[0]})"), 400,
      "sparse_crow_indices");
  expect_refusal(pass("[1]", R"({"dtype":"float32","data":[1],"sparse_crow_indices":[0,1]})"), 422,
                 "sparse_col_indices: is required");
  expect_refusal(pass("[1]", R"({"dtype":"float32","data":[1],"sparse_col_indices":[0]})"), 422,
                 "sparse_crow_indices: is required");
  EXPECT_TRUE(control.calls.empty());
}

TEST_F(TrainingRequests, UnknownFieldsOfTrainingRequestsAreRefusedByName) {
  const std::pair<const char*, const char*> bodies[] = {
      {"optim_step", R"({"model_id":"m","adam_params":{},"new_field":1})"},
      {"optim_step", R"({"model_id":"m","adam_params":{"new_field":1}})"},
      {"create_model", R"({"session_id":"s","model_seq_id":0,"base_model":"b","new_field":1})"},
      {"create_model", R"({"session_id":"s","model_seq_id":0,"base_model":"b","lora_config":{"new_field":1}})"},
      {"load_weights", R"({"model_id":"m","path":"tinker://r/weights/a","new_field":1})"},
      {"save_weights", R"({"model_id":"m","path":"a","new_field":1})"},
      {"save_weights_for_sampler", R"({"model_id":"m","path":"a","new_field":1})"},
      {"forward_backward", R"({"model_id":"m","new_field":1,"forward_backward_input":{"loss_fn":"ppo","data":[]}})"},
      {"forward_backward", R"({"model_id":"m","forward_backward_input":{"loss_fn":"ppo","data":[],"new_field":1}})"},
  };
  for (const auto& [route, body] : bodies)
    expect_refusal(post_json(route, body), 400, "new_field: is not a field that this server knows");
  expect_refusal(post("optim_step", R"({"model_id":"m","adam_params":{},"a secret":1})"), 400,
                 "a member whose name is not a plain word");
  EXPECT_TRUE(control.calls.empty());
}

// libprotobuf would ignore it. The refusal uses the number up, as that of any other field does.
TEST_F(TrainingRequests, AnUnknownFieldOfAProtobufPassIsRefusedByNumber) {
  tinker_public::ForwardBackwardRequest pass;
  pass.set_model_id("s:train:0");
  pass.set_seq_id(7);
  pass.set_loss_fn("cross_entropy");
  tinker_public::Datum& datum = *pass.add_data();
  datum.add_model_input()->mutable_encoded_text()->set_tokens(std::string(4, '\0'));
  EXPECT_EQ(post("forward_backward", pass.SerializeAsString(), kProtobufHeaders).status, 200);
  control.calls.clear();
  auto& reflection = *tinker_public::Datum::GetReflection();
  reflection.MutableUnknownFields(&datum)->AddVarint(31, 1);
  expect_refusal(post("forward_backward", pass.SerializeAsString(), kProtobufHeaders), 400, "field 31 of a Datum: ");
  EXPECT_EQ(control.last_refused.seq_id, 7);
  EXPECT_EQ(control.last_refused.why.reason, "unknown_field");
  reflection.MutableUnknownFields(&datum)->Clear();
  EXPECT_EQ(post("forward_backward", pass.SerializeAsString() + "\x40\x01", kProtobufHeaders).status, 400);
  EXPECT_TRUE(control.calls.empty());
}

TEST_F(TrainingRequests, OptimizersOfStepsAndModelsAreRead) {
  EXPECT_EQ(post("optim_step", R"({"model_id":"m","optimizer_params":{"type":"dimuon","learning_rate":0.01,)"
                               R"("grad_clip_norm":-1,"beta1":0.5}})")
                .status,
            200);
  EXPECT_EQ(control.last_optim.optimizer, control::Optimizer::kDimuon);
  EXPECT_EQ(control.last_optim.learning_rate, 0.01);
  EXPECT_EQ(control.last_optim.beta1, 0.5);
  EXPECT_EQ(control.last_optim.grad_clip_norm, 0.0);
  const std::string create = R"({"session_id":"s","model_seq_id":0,"base_model":"b","optimizer_config":)";
  EXPECT_EQ(post("create_model", create + R"({"type":"dimuon","version":1}})").status, 200);
  EXPECT_EQ(control.last_model.optimizer, control::Optimizer::kDimuon);
  EXPECT_EQ(post("create_model", create + R"({"type":"adamw"}})").status, 200);
  EXPECT_EQ(control.last_model.optimizer, control::Optimizer::kAdamW);
}

TEST_F(TrainingRequests, OtherOptimizersAreRefused) {
  const auto step = [&](const std::string& params) { return post("optim_step", R"({"model_id":"m",)" + params + "}"); };
  expect_refusal(step(R"("optimizer_params":{"type":"sgd","learning_rate":0.01})"), 422,
                 "optimizer_params.type: must be dimuon");
  expect_refusal(step(R"("optimizer_params":{"type":"dimuon"})"), 422, "optimizer_params.learning_rate: is required");
  expect_refusal(step(R"("optimizer_params":{"type":"dimuon","learning_rate":null})"), 400, "it is null");
  expect_refusal(step(R"("optimizer_params":{"type":"dimuon","learning_rate":1,"damping":1})"), 400,
                 "optimizer_params.damping: is not a field");
  expect_refusal(step(R"("optimizer_params":{"type":"dimuon","learning_rate":1},"adam_params":{})"), 422,
                 "one of adam_params and optimizer_params is required");
  expect_refusal(post("load_weights", R"({"model_id":"m","path":"tinker://r/weights/a","optimizer_config":)"
                                      R"({"type":"dimuon"}})"),
                 422, "optimizer_config: belongs to a load that creates a model");
  for (const char* route : {"create_model", "load_weights"}) {
    expect_refusal(post(route, R"({"session_id":"s","model_seq_id":0,"base_model":"b","path":"tinker://r/weights/a",)"
                               R"("optimizer_config":{"type":"sgd","version":2}})"),
                   422, "optimizer_config.type: must be adamw or dimuon");
    expect_refusal(post(route, R"({"session_id":"s","model_seq_id":0,"base_model":"b","path":"tinker://r/weights/a",)"
                               R"("optimizer_config":{"type":"dimuon","version":2}})"),
                   422, "optimizer_config.version: must be 1");
  }
  EXPECT_TRUE(control.calls.empty());
}

TEST_F(TrainingRequests, JsonLossConfigCarriesNumbersAndTexts) {
  const auto pass = [&](const std::string& config) {
    return post_json("forward_backward",
                     R"({"model_id":"m","seq_id":1,"forward_backward_input":{"loss_fn":"ppo","data":[],)"
                     R"("loss_fn_config":)" +
                         config + "}}");
  };
  EXPECT_EQ(pass(R"({"beta":0.5,"mode":"x"})").status, 200);
  EXPECT_EQ(control.last_pass.loss_fn_config().at("beta"), 0.5);
  EXPECT_EQ(control.last_pass.loss_fn_config_v2().at("mode").text(), "x");
  expect_refusal(pass(R"({"beta":null})"), 400, "its member 'beta' must be a number or a string; it is null");
  expect_refusal(pass(R"({"beta":[1]})"), 422, "its member 'beta' must be a number or a string");
}

TEST_F(TrainingRequests, AnUnknownOperationUsesItsNumberUp) {
  const std::string_view body = R"({"model_id":"s:train:0","seq_id":4,"sharpness":2})";
  expect_refusal(post("sharpen_weights", std::string(body)), 404, "no endpoint /api/v1/sharpen_weights");
  EXPECT_EQ(control.last_refused.run.str(), "s:train:0");
  EXPECT_EQ(control.last_refused.seq_id, 4);
  EXPECT_EQ(control.last_refused.type, control::OperationType::kUnknown);
  control.last_refused = {};
  for (const char* other : {"", "[1]", "{\"seq_id\":4}", R"({"model_id":"s:train:0","seq_id":"4"})"}) {
    expect_refusal(post("sharpen_weights", other), 404, "no endpoint");
  }
  EXPECT_FALSE(control.last_refused.seq_id.has_value());
}

TEST_F(TrainingRequests, SavesKeepMetadataAndRefuseUnknownFieldsByName) {
  EXPECT_EQ(
      post("save_weights", R"({"model_id":"m","path":"a","user_metadata":{"note":"n"},"type":"save_weights"})").status,
      200);
  EXPECT_EQ(control.last_save.user_metadata.at("note"), "n");
  EXPECT_EQ(
      post("save_weights_for_sampler", R"({"model_id":"m","path":"a","kind":"snapshot","user_metadata":{"note":"s"}})")
          .status,
      200);
  EXPECT_EQ(control.last_sampler_save.user_metadata.at("note"), "s");
  expect_refusal(post("save_weights", R"({"model_id":"m","path":"a","overwrit":true})"), 400, "overwrit:");
  expect_refusal(post("save_weights_for_sampler", R"({"model_id":"m","kind":"copy"})"), 422, "kind");
  expect_refusal(post("save_weights_for_sampler", R"({"model_id":"m","overwrite":true})"), 400, "overwrite");
  expect_refusal(post("save_weights_for_sampler", R"({"model_id":"m","path":"a","kind":"inflight"})"), 422,
                 "kind: must be snapshot for a save with a name");
  EXPECT_EQ(
      post("save_weights_for_sampler", R"({"model_id":"m","sampling_session_seq_id":1,"kind":"inflight"})").status,
      200);
  EXPECT_TRUE(control.last_sampler_save.inflight);
  expect_refusal(post("save_weights", R"({"model_id":"m","user_metadata":["x"]})"), 422, "user_metadata");
}

}  // namespace
}  // namespace tuft::api
