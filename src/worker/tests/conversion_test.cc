#include "worker/conversion.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "base/text.h"
#include "rpc/methods.h"
#include "worker/sample_messages.h"

namespace tuft::worker {
namespace {

template <typename T>
std::string bytes(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

template <typename T>
std::vector<T> numbers(const std::string& text) {
  std::vector<T> result(text.size() / sizeof(T));
  std::memcpy(result.data(), text.data(), text.size());
  return result;
}

tinker_public::Tensor dense(tinker_public::DType dtype, const std::string& data, const std::vector<int64_t>& shape) {
  tinker_public::Tensor tensor;
  tensor.set_dense(data);
  tensor.set_dtype(dtype);
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
  return tensor;
}

tinker_public::Tensor sparse(const std::vector<float>& values, const std::vector<int64_t>& crow,
                             const std::vector<int64_t>& col, const std::vector<int64_t>& shape) {
  tinker_public::Tensor tensor;
  tensor.mutable_sparse_csr()->set_values(bytes(values));
  tensor.mutable_sparse_csr()->set_crow_indices(bytes(crow));
  tensor.mutable_sparse_csr()->set_col_indices(bytes(col));
  tensor.set_dtype(tinker_public::DTYPE_FLOAT32);
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
  return tensor;
}

tinker_public::ForwardBackwardRequest request_with(const tinker_public::Tensor& tensor) {
  tinker_public::ForwardBackwardRequest request;
  request.set_loss_fn("cross_entropy");
  auto& datum = *request.add_data();
  datum.add_model_input()->mutable_encoded_text()->set_tokens(bytes<int32_t>({5, 6}));
  datum.add_model_input()->mutable_encoded_text()->set_tokens(bytes<int32_t>({7}));
  (*datum.mutable_loss_fn_inputs())["weights"] = tensor;
  return request;
}

Result<engine::TrainRequest> convert(const tinker_public::ForwardBackwardRequest& request) {
  return to_train_request(request, engine::AdapterId("a"), "tiny");
}

engine::LossTensor read(const tinker_public::Tensor& tensor) {
  auto request = convert(request_with(tensor));
  EXPECT_TRUE(request.ok()) << request.error().message;
  return request.ok() ? request->data[0].loss_inputs.at("weights") : engine::LossTensor{};
}

Error refusal(const tinker_public::ForwardBackwardRequest& request) {
  const auto result = convert(request);
  EXPECT_FALSE(result.ok());
  return result.ok() ? Error{} : result.error();
}

// Bodies of forward_backward as SDK 0.38 sends them.
std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

engine::TrainRequest sent(std::string_view hex) {
  tinker_public::ForwardBackwardRequest request;
  EXPECT_TRUE(request.ParseFromString(from_hex(hex)));
  auto converted = convert(request);
  EXPECT_TRUE(converted.ok()) << converted.error().message;
  return converted.ok() ? std::move(*converted) : engine::TrainRequest{};
}

TEST(Conversion, GspoOfSdk038) {
  const engine::TrainRequest request = sent(
      "0a0a73313a747261696e3a3010071acc010a140a120a100500000006000000070000000b00000012250a0a616476616e"
      "746167657312170a1000000000000000000000803f0000803f1801220104122e0a1373657175656e63655f726174696f"
      "5f6d61736b12170a1000000000000000000000803f0000803f180122010412380a0d7461726765745f746f6b656e7312"
      "270a20060000000000000007000000000000000b000000000000000c00000000000000180222010412230a086c6f6770"
      "726f627312170a100000000000000000000000bf000080be180122010422046773706f2a1e0a13636c69705f68696768"
      "5f7468726573686f6c6411c4b12e6ea301f03f2a1d0a12636c69705f6c6f775f7468726573686f6c6411789ca223b9fc"
      "ef3f3a200a13636c69705f686967685f7468726573686f6c64120909c4b12e6ea301f03f3a1f0a12636c69705f6c6f77"
      "5f7468726573686f6c64120909789ca223b9fcef3f");
  EXPECT_EQ(request.loss_fn, "gspo");
  EXPECT_EQ(request.loss_config,
            (std::map<std::string, double>{{"clip_high_threshold", 1.0004}, {"clip_low_threshold", 0.9996}}));
  ASSERT_EQ(request.data.size(), 1U);
  EXPECT_EQ(std::get<std::vector<float>>(request.data[0].loss_inputs.at("sequence_ratio_mask").values),
            (std::vector<float>{0, 0, 1, 1}));
}

TEST(Conversion, SpansAndTextsOfSdk038) {
  const engine::TrainRequest request = sent(
      "0a0a73313a747261696e3a3010081ace010a140a120a100500000006000000070000000b00000012250a0a616476616e"
      "746167657312170a1000000000000000000000803f0000803f180122010412380a0d7461726765745f746f6b656e7312"
      "270a20060000000000000007000000000000000b000000000000000c00000000000000180222010412230a086c6f6770"
      "726f627312170a100000000000000000000000bf000080be18012201041a0a0a080a0472362d3018031a0a12080a0472"
      "362d301801220c0a0a0a0472362d3010011802220a12080a0472362d3018022210737461626c655f7265696e666f7263"
      "652a130a086b6c5f636f6566661100000000000000003a150a086b6c5f636f65666612090900000000000000003a0b0a"
      "046d6f64651203120178");
  EXPECT_EQ(request.loss_fn, "stable_reinforce");
  EXPECT_EQ(request.loss_config, (std::map<std::string, double>{{"kl_coeff", 0}}));
  EXPECT_EQ(request.loss_texts, (std::map<std::string, std::string>{{"mode", "x"}}));
}

TEST(Conversion, LossConfigOfNewerClientsWins) {
  auto request = request_with(dense(tinker_public::DTYPE_FLOAT32, bytes<float>({1, 1, 1}), {3}));
  (*request.mutable_loss_fn_config())["beta"] = 0.5;
  (*request.mutable_loss_fn_config())["old"] = 2;
  (*request.mutable_loss_fn_config())["mode"] = 3;
  (*request.mutable_loss_fn_config_v2())["beta"].set_number(0.25);
  (*request.mutable_loss_fn_config_v2())["mode"].set_text("x");
  const auto converted = convert(request);
  ASSERT_TRUE(converted.ok()) << converted.error().message;
  EXPECT_EQ(converted->loss_config, (std::map<std::string, double>{{"beta", 0.25}, {"old", 2}}));
  EXPECT_EQ(converted->loss_texts, (std::map<std::string, std::string>{{"mode", "x"}}));
  (*request.mutable_loss_fn_config_v2())["nothing"];
  EXPECT_NE(convert(request).error().message.find("'nothing' has no value"), std::string::npos);
}

TEST(TrainRequest, ChunksAreJoinedAndOtherFieldsAreCopied) {
  auto request = request_with(dense(tinker_public::DTYPE_FLOAT32, bytes<float>({1, 2, 3}), {3}));
  (*request.mutable_loss_fn_config())["beta"] = 0.5;
  request.set_forward_only(true);
  const auto result = convert(request);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->data[0].tokens, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(result->loss_fn, "cross_entropy");
  EXPECT_EQ(result->loss_config.at("beta"), 0.5);
  EXPECT_FALSE(result->backward);
}

TEST(TrainRequest, DenseTensorsOfEveryDtypeAreRead) {
  using Floats = std::vector<float>;
  using Ints = std::vector<int64_t>;
  EXPECT_EQ(std::get<Floats>(read(dense(tinker_public::DTYPE_FLOAT32, bytes<float>({1.5F, -2}), {2})).values),
            (Floats{1.5F, -2}));
  EXPECT_EQ(std::get<Ints>(read(dense(tinker_public::DTYPE_INT64, bytes<int64_t>({1, -2}), {2})).values),
            (Ints{1, -2}));
  EXPECT_EQ(std::get<Ints>(read(dense(tinker_public::DTYPE_INT32, bytes<int32_t>({1, -2}), {2})).values),
            (Ints{1, -2}));
  const auto halves = dense(tinker_public::DTYPE_BFLOAT16, bytes<uint16_t>({0x3fc0, 0xc000}), {2});
  EXPECT_EQ(std::get<Floats>(read(halves).values), (Floats{1.5F, -2}));
}

TEST(TrainRequest, AnEmptyShapeMeansOneDimension) {
  EXPECT_EQ(read(dense(tinker_public::DTYPE_FLOAT32, bytes<float>({1, 2, 3}), {})).shape, (std::vector<int64_t>{3}));
  EXPECT_EQ(read(dense(tinker_public::DTYPE_FLOAT32, "", {})).shape, (std::vector<int64_t>{0}));
}

TEST(TrainRequest, SparseTensorsStaySparse) {
  const auto tensor = read(sparse({1, 2, 3}, {0, 1, 1, 3}, {2, 0, 1}, {3, 3}));
  EXPECT_EQ(tensor.shape, (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(std::get<std::vector<float>>(tensor.values), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(tensor.places, (std::vector<int64_t>{2, 6, 7}));
}

// What waits for its turn takes no more memory than what was sent, however many cells its shape has.
TEST(TrainRequest, AWaitingSparseTensorTakesWhatWasSent) {
  const auto tensor = read(sparse({1}, {0, 1, 1, 1}, {5}, {3, rpc::kLossCellsMax / 3}));
  ASSERT_TRUE(tensor.places.has_value());
  EXPECT_LE(tensor.places->capacity() + std::get<std::vector<float>>(tensor.values).capacity(), 16U);
}

TEST(TrainRequest, MalformedTensorsAreRefusedWithDatumAndKey) {
  const auto f32 = tinker_public::DTYPE_FLOAT32;
  tinker_public::Tensor no_data;
  no_data.set_dtype(f32);
  auto odd_crow = sparse({1}, {0, 1}, {0}, {1, 1});
  odd_crow.mutable_sparse_csr()->mutable_crow_indices()->push_back('x');
  const std::vector<std::pair<const char*, tinker_public::Tensor>> cases = {
      {"item size", dense(f32, "abc", {})},
      {"shape asks for 2", dense(f32, bytes<float>({1}), {2})},
      {"shape asks for 0", dense(f32, bytes<float>({1}), {0})},
      {"negative size", dense(f32, bytes<float>({1}), {-1})},
      {"absurd", dense(f32, "", {int64_t{1} << 40, int64_t{1} << 40})},
      {"3 dimensions", dense(f32, bytes<float>({1}), {1, 1, 1})},
      {"dtype", dense(tinker_public::DTYPE_UNSPECIFIED, "", {})},
      {"dtype", dense(static_cast<tinker_public::DType>(99), "", {})},
      {"no data", no_data},
      {"two dimensions", sparse({1}, {0, 1}, {0}, {1})},
      {"whole i64", odd_crow},
      {"crow_indices for 2 rows", sparse({1}, {0, 1}, {0}, {2, 2})},
      {"start at 0", sparse({1}, {1, 1}, {0}, {1, 1})},
      {"number of values", sparse({1}, {0, 2}, {0}, {1, 1})},
      {"go down", sparse({1, 1}, {0, 2, 1, 2}, {0, 1}, {3, 2})},
      {"outside of its 2 columns", sparse({1}, {0, 1}, {2}, {1, 2})},
      {"outside of its 2 columns", sparse({1}, {0, 1}, {-1}, {1, 2})},
      {"bytes of values", sparse({1, 2}, {0, 1}, {0}, {1, 2})},
      {"absurd", sparse({}, {0}, {}, {int64_t{1} << 62, 0})},
  };
  for (const auto& [words, tensor] : cases) {
    const Error error = refusal(request_with(tensor));
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument) << words;
    EXPECT_NE(error.message.find(words), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("datum 0, loss input 'weights'"), std::string::npos) << error.message;
  }
}

TEST(TrainRequest, ASmallMessageCannotAskForMuchMemory) {
  const Error error = refusal(request_with(sparse({}, {0, 0}, {}, {1, rpc::kLossCellsMax + 1})));
  EXPECT_EQ(error.code, ErrorCode::kPayloadTooLarge);
  auto request = request_with(sparse({}, {0, 0}, {}, {1, rpc::kLossCellsMax}));
  *request.add_data() = request.data(0);
  EXPECT_EQ(refusal(request).code, ErrorCode::kPayloadTooLarge);
}

// Else the gradient of such a request would have been added, and the answer could not be sent.
TEST(TrainRequest, TheLogprobsOfAllCellsFitIntoOneMessage) {
  constexpr int64_t kBytes = rpc::kLossCellsMax * static_cast<int64_t>(sizeof(float));
  EXPECT_LE(kBytes + (1 << 20), int64_t{rpc::kMessageBytesMax});
}

TEST(TrainRequest, InputsOtherThanTextAreRefusedByName) {
  auto request = request_with(dense(tinker_public::DTYPE_FLOAT32, "", {}));
  request.mutable_data(0)->add_model_input()->mutable_image()->set_data("png");
  EXPECT_NE(refusal(request).message.find("image input is not supported by model tiny"), std::string::npos);
  request.mutable_data(0)->mutable_model_input(2)->mutable_dmel()->set_dmel("x");
  EXPECT_NE(refusal(request).message.find("audio (dmel)"), std::string::npos);
  request.mutable_data(0)->mutable_model_input(2)->Clear();
  EXPECT_EQ(refusal(request).code, ErrorCode::kInvalidArgument);
  request.mutable_data(0)->mutable_model_input(2)->mutable_encoded_text()->set_tokens("abc");
  EXPECT_NE(refusal(request).message.find("3 bytes"), std::string::npos);
  request.mutable_data(0)->clear_model_input();
  EXPECT_NE(refusal(request).message.find("no tokens"), std::string::npos);
  request.clear_data();
  EXPECT_NE(refusal(request).message.find("data is empty"), std::string::npos);
}

TEST(TrainOutputMessage, ANewRecordBeginsWhereTheTrailingShapeChanges) {
  engine::TrainOutput output;
  output.logprobs = {{{2}, std::vector<float>{1, 2}},
                     {{1}, std::vector<float>{3}},
                     {{1, 2}, std::vector<float>{4, 5}},
                     {{3}, std::vector<float>{6, 7, 8}}};
  output.metrics = {{"loss:sum", 2.5}};
  const auto message = to_output(output);
  ASSERT_EQ(message.loss_fn_outputs_size(), 3);
  const auto& first = message.loss_fn_outputs(0);
  EXPECT_EQ(first.num_datums(), 2);
  const auto& logprobs = first.fields().at("logprobs");
  EXPECT_EQ(logprobs.dtype(), tinker_public::DTYPE_FLOAT32);
  EXPECT_EQ(numbers<float>(logprobs.data()), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(numbers<int64_t>(logprobs.offsets()), (std::vector<int64_t>{0, 8, 12}));
  EXPECT_EQ(logprobs.trailing_shape_size(), 0);
  const auto& second = message.loss_fn_outputs(1).fields().at("logprobs");
  ASSERT_EQ(second.trailing_shape_size(), 1);
  EXPECT_EQ(second.trailing_shape(0), 2);
  EXPECT_EQ(message.loss_fn_outputs(2).num_datums(), 1);
  EXPECT_EQ(message.metrics().at("loss:sum"), 2.5);
}

TEST(SampleMessages, ParametersAreReadAndAbsentOnesKeepTheirDefaults) {
  v1::SampleRequest request;
  request.set_prompt_tokens(bytes<int32_t>({1, 2}));
  request.set_num_samples(2);
  auto plain = to_sample_request(request, std::nullopt);
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->prompt, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(plain->params.temperature, 1.0F);
  EXPECT_EQ(plain->params.top_k, -1);
  EXPECT_FALSE(plain->params.max_tokens || plain->params.seed || plain->adapter);
  auto& params = *request.mutable_params();
  params.set_max_tokens(3);
  params.set_seed(4);
  params.set_temperature(0);
  params.mutable_stop_strs()->add_values("x");
  request.set_cache_scope("somebody");
  const auto full = to_sample_request(request, engine::AdapterId("s"));
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(*full->params.max_tokens, 3);
  EXPECT_EQ(*full->params.seed, 4U);
  EXPECT_EQ(full->params.temperature, 0.0F);
  EXPECT_EQ(full->params.stop_strings, (std::vector<std::string>{"x"}));
  EXPECT_EQ(full->adapter, engine::AdapterId("s"));
  EXPECT_EQ(plain->scope, "");
  EXPECT_EQ(full->scope, "somebody");
  request.set_prompt_tokens("abc");
  EXPECT_EQ(to_sample_request(request, std::nullopt).error().code, ErrorCode::kInvalidArgument);
}

TEST(SampleMessages, AnEmptyListOfStopsIsNotTheSameAsNone) {
  v1::SampleRequest request;
  request.set_prompt_tokens(bytes<int32_t>({1}));
  const auto ends_at_eos = [&] {
    v1::SampleRequest sent;  // the difference must survive the wire
    EXPECT_TRUE(sent.ParseFromString(request.SerializeAsString()));
    return to_sample_request(sent, std::nullopt)->params.ends_at_eos;
  };
  EXPECT_TRUE(ends_at_eos());
  request.mutable_params()->mutable_stop_tokens();
  EXPECT_FALSE(ends_at_eos());
  request.mutable_params()->mutable_stop_tokens()->add_values(5);
  EXPECT_TRUE(ends_at_eos());
}

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) append_hex(text, {&byte, 1});
  return text;
}

v1::SampleRequest scored_request(size_t prompt) {
  v1::SampleRequest request;
  request.set_prompt_tokens(bytes<int32_t>(std::vector<int32_t>(prompt, 1)));
  request.set_num_samples(1);
  return request;
}

TEST(SampleMessages, TargetsAreReadRowByRow) {
  v1::SampleRequest request = scored_request(4);
  request.set_prompt_logprobs_last_n(2);
  request.set_prompt_alt_tokens(3);
  v1::PromptTargets& targets = *request.mutable_prompt_targets();
  targets.set_tokens(bytes<int32_t>({5, -1, 6, 7, -1, -1}));
  targets.set_columns(2);
  auto dense = to_sample_request(request, std::nullopt);
  ASSERT_TRUE(dense.ok());
  EXPECT_EQ(dense->prompt_logprobs_last_n, 2);
  EXPECT_EQ(dense->prompt_alt_tokens, 3);
  EXPECT_EQ(dense->prompt_targets.tokens, (std::vector<int32_t>{5, -1, 6, 7, -1, -1}));
  EXPECT_EQ(dense->prompt_targets.row_begins, (std::vector<size_t>{0, 2, 4, 6}));
  targets.set_crow_indices(bytes<int64_t>({0, 0, 6, 6}));
  EXPECT_EQ(to_sample_request(request, std::nullopt)->prompt_targets.row_begins, (std::vector<size_t>{0, 0, 6, 6}));
  targets.clear_crow_indices();
  for (const int64_t columns : {int64_t{3}, int64_t{0}, int64_t{-2}, int64_t{1} << 62}) {
    targets.set_columns(columns);
    EXPECT_EQ(to_sample_request(request, std::nullopt).error().reason, "malformed_tensor");
  }
}

// Answers with which SDK 0.38 was seen to succeed.
TEST(SampleMessages, AnAnswerWithEveryOptionIsTheOneThatTheSdkReads) {
  v1::SampleRequest request = scored_request(4);
  request.set_topk_prompt_logprobs(2);
  request.set_topk_logprobs(3);
  request.set_prompt_alt_tokens(2);
  request.mutable_prompt_targets()->set_columns(1);
  engine::SampleResult result;
  result.sequences = {{engine::StopReason::kLength, {11}, {-0.5F}, {{{11, -0.5F}, {12, -1}, {13, -2}}}}};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  result.prompt_logprobs = {nan, nan, -1, -1};
  result.topk_prompt_logprobs = {{}, {}, {{7, -1}, {9, -2}}, {{8, -1}, {9, -2}}};
  result.target_logprobs = {0, -2, 0};
  result.prompt_alt_tokens = {{1, -1}, {2, -1}, {3, -1}, {4, -1}, {5, -1}, {6, -1}};
  EXPECT_EQ(hex(to_sample_response(result, answer_form(request, false)).response()),
            "0a30080112040b0000001a04000000bf22200a0c0b0000000c0000000d000000120c000000bf000080bf000000c0180320011210"
            "0000c07f0000c07f000080bf000080bf1a480a200000000000000000000000000000000007000000090000000800000009000000"
            "1220804fc3c7804fc3c7804fc3c7804fc3c7000080bf000000c0000080bf000000c0180220042a140a0c00000000000000c00000"
            "000018012202030132440a200a1801000000020000000300000004000000050000000600000018032202030212200a18000080bf"
            "000080bf000080bf000080bf000080bf000080bf180122020302");
  tinker_public::SampleResponse streamed;
  ASSERT_TRUE(streamed.ParseFromString(to_sample_response(result, answer_form(request, true)).response()));
  EXPECT_FALSE(streamed.sequences(0).has_topk_sampled_logprobs()) << "a stream has sent them";
}

TEST(SampleMessages, RecordsLieBesideTheResponse) {
  v1::SampleRequest request = scored_request(3);
  engine::SampleResult result;
  result.sequences = {{engine::StopReason::kLength, {11, 12}, {-0.5F, -0.25F}, {}},
                      {engine::StopReason::kStop, {13}, {-2}, {}}};
  EXPECT_EQ(to_sample_response(result, answer_form(request, false)).records_size(), 0);
  request.set_record(true);
  const v1::SampleResponse response = to_sample_response(result, answer_form(request, false));
  ASSERT_EQ(response.records_size(), 2);
  EXPECT_EQ(response.records(0).tokens(), bytes<int32_t>({11, 12}));
  EXPECT_EQ(response.records(0).logprobs(), bytes<float>({-0.5F, -0.25F}));
  EXPECT_EQ(response.records(1).tokens(), bytes<int32_t>({13}));
}

TEST(SampleMessages, SparseTargetsKeepTheirLayout) {
  v1::SampleRequest request = scored_request(6);
  v1::PromptTargets& targets = *request.mutable_prompt_targets();
  targets.set_tokens(bytes<int32_t>({7, 8, 9}));
  targets.set_columns(3);
  targets.set_crow_indices(bytes<int64_t>({0, 0, 0, 0, 0, 3}));
  targets.set_col_indices(bytes<int64_t>({0, 1, 2}));
  engine::SampleResult result;
  result.sequences = {{engine::StopReason::kLength, {11, 12}, {-0.5F, -0.25F}, {}}};
  result.target_logprobs = {-2, -2, -2};
  EXPECT_EQ(hex(to_sample_response(result, answer_form(request, false)).response()),
            "0a16080112080b0000000c0000001a08000000bf000080be2a62125a0a0c000000c0000000c0000000c012300000000000000000"
            "000000000000000000000000000000000000000000000000000000000000000003000000000000001a1800000000000000000100"
            "0000000000000200000000000000180122020503");
}

TEST(SampleMessages, CellsWithoutATokenHoldTheSentinel) {
  engine::SampleResult result;
  result.sequences = {{engine::StopReason::kStop, {7, 8}, {-1.0F, -2.0F}, {}}};
  result.cached_tokens = 64;
  result.preemptions = 2;
  result.prompt_logprobs = {NAN, -3.0F};
  result.topk_prompt_logprobs = {{}, {{4, -0.5F}}};
  const v1::SampleResponse response = to_sample_response(result, {.prompt_tokens = 2, .topk_prompt_logprobs = 2});
  tinker_public::SampleResponse message;
  ASSERT_TRUE(message.ParseFromString(response.response()));
  EXPECT_EQ(message.sequences(0).stop_reason(), tinker_public::STOP_REASON_STOP);
  EXPECT_EQ(numbers<int32_t>(message.sequences(0).tokens()), (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(numbers<float>(message.sequences(0).logprobs()), (std::vector<float>{-1, -2}));
  EXPECT_TRUE(std::isnan(numbers<float>(message.prompt_logprobs())[0]));
  EXPECT_EQ(message.topk_prompt_logprobs().length(), 2U);
  EXPECT_EQ(numbers<int32_t>(message.topk_prompt_logprobs().token_ids()), (std::vector<int32_t>{0, 0, 4, 0}));
  EXPECT_EQ(numbers<float>(message.topk_prompt_logprobs().logprobs()),
            (std::vector<float>{-99999, -99999, -0.5F, -99999}));
  EXPECT_EQ(response.output_tokens(), 2);
  EXPECT_EQ(response.sequence_tokens_size(), 1);
  EXPECT_EQ(response.sequence_tokens(0), 2);
  EXPECT_EQ(response.stopped_sequences(), 1);
  EXPECT_EQ(response.cached_tokens(), 64);
  EXPECT_EQ(message.prompt_cache_hit_tokens(), 64);
  EXPECT_EQ(response.preemptions(), 2);
  result.prompt_logprobs.clear();
  ASSERT_TRUE(message.ParseFromString(to_sample_response(result, {.prompt_tokens = 2}).response()));
  EXPECT_FALSE(message.has_prompt_logprobs() || message.has_topk_prompt_logprobs());
}

}  // namespace
}  // namespace tuft::worker
