// Records are converted to JSON and back.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "control/persistence/custom_loss_records.h"
#include "control/persistence/records.h"

namespace tuft::control {
namespace {

using Json = nlohmann::json;

TEST(RecordJson, ASessionRoundTrips) {
  SessionRecord record;
  record.id = SessionId("s");
  record.user = UserId("alice");
  record.request = {{"a", "b"}, {{"k", "v\xff"}}, "0.25.0", "p", "key", "nightly"};
  record.created_at = "2026-01-01T00:00:00.000000+00:00";
  record.ending = "finished";
  record.finish = {FinishReason::kErrored, "out of data"};
  const auto back = session_from_json(to_json(record));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->id, record.id);
  EXPECT_EQ(back->user, record.user);
  EXPECT_EQ(back->request.tags, record.request.tags);
  EXPECT_EQ(back->request.idempotency_key, "key");
  EXPECT_EQ(back->created_at, record.created_at);
  EXPECT_EQ(back->ending, "finished");
  EXPECT_EQ(back->request.display_name, "nightly");
  EXPECT_EQ(back->finish.reason, FinishReason::kErrored);
  EXPECT_EQ(back->finish.detail, "out of data");
}

TEST(RecordJson, ARunRoundTripsUnderTuFTsNames) {
  RunRecord record;
  record.id = RunId("s:train:0");
  record.user = UserId("alice");
  record.session = SessionId("s");
  record.base_model = "org/m";
  record.lora = {4, 7, false, true, true};
  record.optimizer = Optimizer::kDimuon;
  record.seed = 18446744073709551615ULL;
  record.lora_alpha = 8;
  record.target_modules = {"q_proj"};
  record.next_seq_id = 12;
  record.restore_point = CheckpointRef{"tinker://s:train:0/weights/a", 9};
  record.restore_with_optimizer = true;
  record.restore_number = 10;
  record.restore_seq_id = 11;
  record.gradient_pending = true;
  record.restore_lacks_gradient = true;
  record.last_operation = "request-1";
  const std::string text = to_json(record);
  const auto back = run_from_json(text);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->seed, record.seed);
  EXPECT_EQ(back->lora.rank, 4);
  EXPECT_FALSE(back->lora.train_unembed);
  EXPECT_EQ(back->optimizer, Optimizer::kDimuon);
  EXPECT_EQ(back->next_seq_id, 12);
  ASSERT_TRUE(back->restore_point.has_value());
  EXPECT_EQ(back->restore_point->future_number, 9U);
  EXPECT_EQ(back->restore_number, 10U);
  EXPECT_EQ(back->restore_seq_id, 11);
  EXPECT_TRUE(back->gradient_pending);
  EXPECT_TRUE(back->restore_lacks_gradient);
  EXPECT_EQ(back->last_operation, "request-1");
  const Json json = Json::parse(text);
  for (const char* name :
       {"training_run_id", "base_model", "lora_rank", "train_attn", "train_mlp", "train_unembed", "target_modules",
        "target_parameters", "session_id", "model_owner", "user_metadata", "created_at", "last_request_time",
        "next_training_checkpoint", "next_sampler_checkpoint", "corrupted", "next_seq_id"}) {
    EXPECT_TRUE(json.contains(name)) << name;
  }
}

TEST(RecordJson, TheMetadataOfARunStandsInItsRecordOrApart) {
  RunRecord record;
  record.id = RunId("s:train:0");
  record.user_metadata = {{"k", "v"}};
  const auto in_place = run_from_json(to_json(record));
  ASSERT_TRUE(in_place.ok()) << in_place.error().message;
  EXPECT_EQ(in_place->user_metadata, record.user_metadata);
  EXPECT_FALSE(in_place->metadata_apart);
  record.metadata_apart = true;
  const auto apart = run_from_json(to_json(record));
  ASSERT_TRUE(apart.ok()) << apart.error().message;
  EXPECT_TRUE(apart->user_metadata.empty());
  EXPECT_TRUE(apart->metadata_apart);
  const auto metadata = run_metadata_from_json(to_json(RunMetadataRecord{record.id, record.user_metadata}));
  ASSERT_TRUE(metadata.ok()) << metadata.error().message;
  EXPECT_EQ(metadata->id, record.id);
  EXPECT_EQ(metadata->user_metadata, record.user_metadata);
  for (const char* text : {"", "{}", "[]", R"({"training_run_id":"r","user_metadata":3})"}) {
    EXPECT_EQ(run_metadata_from_json(text).error().code, ErrorCode::kDataLoss) << text;
  }
}

TEST(RecordJson, ASamplerRoundTrips) {
  SamplerRecord record;
  record.id = SamplerId("s:sample:3");
  record.seq_id = 3;
  record.base_model = "m";
  EXPECT_FALSE(sampler_from_json(to_json(record))->checkpoint.has_value());
  record.checkpoint = CheckpointRef{"tinker://r/sampler_weights/x", 5};
  EXPECT_EQ(sampler_from_json(to_json(record))->checkpoint->future_number, 5U);
}

FutureRecord future_of(OperationType type, FutureValue value) {
  FutureRecord record;
  record.request = RequestId("r");
  record.user = UserId("alice");
  record.keys.operation = type;
  record.keys.run = RunId("s:train:0");
  record.keys.seq_id = 4;
  record.key = "s:train:0#4";
  record.number = 17;
  record.state = FutureSnapshot::State::kReady;
  record.value = std::make_shared<const FutureValue>(std::move(value));
  return record;
}

template <typename Value>
Value round_trip(OperationType type, Value value) {
  const FutureRecord record = future_of(type, std::move(value));
  const auto back = future_from_json(to_json(record));
  EXPECT_TRUE(back.ok()) << back.error().message;
  if (!back.ok()) return {};
  EXPECT_EQ(back->number, 17U);
  EXPECT_EQ(back->keys.operation, type);
  EXPECT_EQ(back->keys.seq_id, 4);
  EXPECT_EQ(back->key, record.key);
  return std::get<Value>(*back->value);
}

TEST(RecordJson, ACustomLossRoundTrips) {
  const CustomLossRecord loss{
      "s:loss:0", UserId("alice"), SessionId("s"), {{"logprobs", 1}, {"tau", 0}}, R"({"a":"\u00e9"})"};
  const auto read = custom_loss_from_json(to_json(loss));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->id, loss.id);
  EXPECT_EQ(read->user, loss.user);
  EXPECT_EQ(read->session, loss.session);
  ASSERT_EQ(read->inputs.size(), 2U);
  EXPECT_EQ(read->inputs[1].name, "tau");
  EXPECT_EQ(read->inputs[0].rank, 1);
  EXPECT_EQ(read->graph, loss.graph);
  for (const char* text : {"", "{}", "[]", R"({"loss_id":3})"}) {
    EXPECT_EQ(custom_loss_from_json(text).error().code, ErrorCode::kDataLoss) << text;
  }
}

TEST(RecordJson, EveryKindOfResultRoundTrips) {
  using Type = OperationType;
  const RunId run("s:train:0");
  EXPECT_EQ(round_trip(Type::kCreateModel, CreateModelResult{run}).run, run);
  EXPECT_EQ(round_trip(Type::kOptimStep, OptimStepResult{{{"grad_norm", 0.1}}}).metrics.at("grad_norm"), 0.1);
  EXPECT_EQ(round_trip(Type::kSaveWeights, SaveWeightsResult{"p"}).path, "p");
  EXPECT_EQ(round_trip(Type::kLoadWeights, LoadWeightsResult{"p", run}).run, run);
  const auto external =
      round_trip(Type::kSaveWeightsExternal, SaveWeightsExternalResult{"tinker://r/external_weights/a", 7});
  EXPECT_EQ(external.size_bytes, 7);
  EXPECT_EQ(round_trip(Type::kCreateCustomLoss, CreateCustomLossResult{"s:loss:0"}).loss_id, "s:loss:0");
  const auto sampler = round_trip(Type::kSaveWeightsForSampler, SaveWeightsForSamplerResult{{}, SamplerId("x")});
  EXPECT_EQ(sampler.sampler->str(), "x");
  EXPECT_FALSE(sampler.path.has_value());
}

TEST(RecordJson, AResultInProtobufLiesApart) {
  const std::string bytes("\x00\xff\x01proto", 8);
  const FutureRecord record = future_of(OperationType::kSample, ProtobufResult{bytes});
  const std::string text = to_json(record);
  EXPECT_NE(text.find(R"("__tuft_proto__":"sample_response")"), std::string::npos);
  const auto back = future_from_json(text);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->state, FutureSnapshot::State::kReady);
  EXPECT_EQ(back->value, nullptr);
  EXPECT_EQ(back->apart, 8);
  EXPECT_EQ(to_json(*back), text);
}

TEST(RecordJson, AResultThatAnOlderServerLeftInTheRecordIsRead) {
  const std::string bytes("\x00\xff\x01proto", 8);
  Json json = Json::parse(to_json(future_of(OperationType::kForwardBackward, ProtobufResult{bytes})));
  json["payload"] = {{"__tuft_proto__", "forward_backward_output"}, {"data", to_base64(bytes)}};
  const auto back = future_from_json(json.dump());
  ASSERT_TRUE(back.ok()) << back.error().message;
  ASSERT_NE(back->value, nullptr);
  EXPECT_EQ(std::get<ProtobufResult>(*back->value).bytes, bytes);
  EXPECT_FALSE(back->apart.has_value());
  json["payload"]["data"] = "!";
  EXPECT_EQ(future_from_json(json.dump()).error().code, ErrorCode::kDataLoss);
}

TEST(RecordJson, AFailureKeepsItsErrorCode) {
  FutureRecord record = future_of(OperationType::kOptimStep, OptimStepResult{});
  record.state = FutureSnapshot::State::kFailed;
  record.value = nullptr;
  record.error = failed_precondition("no", "seq_id_gap");
  const auto back = future_from_json(to_json(record));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->error.code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(back->error.reason, "seq_id_gap");
  EXPECT_EQ(back->error.message, "no");
}

TEST(RecordJson, TextThatIsNotARecordIsDataLoss) {
  for (const char* text : {"", "null", "[]", "{}", "{\"session_id\": 7}", "\xff"}) {
    EXPECT_EQ(session_from_json(text).error().code, ErrorCode::kDataLoss) << text;
    EXPECT_EQ(run_from_json(text).error().code, ErrorCode::kDataLoss) << text;
    EXPECT_EQ(sampler_from_json(text).error().code, ErrorCode::kDataLoss) << text;
    EXPECT_EQ(future_from_json(text).error().code, ErrorCode::kDataLoss) << text;
  }
}

TEST(Base64, FollowsTheStandard) {
  EXPECT_EQ(to_base64(""), "");
  EXPECT_EQ(to_base64("f"), "Zg==");
  EXPECT_EQ(to_base64("fo"), "Zm8=");
  EXPECT_EQ(to_base64("foobar"), "Zm9vYmFy");
  for (const char* text : {"", "f", "fo", "foo", "\xff\xfex"}) EXPECT_EQ(*from_base64(to_base64(text)), text);
  for (const char* wrong : {"Z", "Zg=", "Zg=a", "Z!==", "===="}) EXPECT_FALSE(from_base64(wrong).has_value()) << wrong;
}

}  // namespace
}  // namespace tuft::control
