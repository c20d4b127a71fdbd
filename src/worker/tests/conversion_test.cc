#include "worker/conversion.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

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
  const auto tensor = read(sparse({1}, {0, 1, 1, 1}, {5}, {3, kLossCellsMax / 3}));
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
  const Error error = refusal(request_with(sparse({}, {0, 0}, {}, {1, kLossCellsMax + 1})));
  EXPECT_EQ(error.code, ErrorCode::kPayloadTooLarge);
  auto request = request_with(sparse({}, {0, 0}, {}, {1, kLossCellsMax}));
  *request.add_data() = request.data(0);
  EXPECT_EQ(refusal(request).code, ErrorCode::kPayloadTooLarge);
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

TEST(SampleMessages, CellsWithoutATokenHoldTheSentinel) {
  engine::SampleResult result;
  result.sequences = {{engine::StopReason::kStop, {7, 8}, {-1.0F, -2.0F}, {}}};
  result.cached_tokens = 64;
  result.preemptions = 2;
  result.prompt_logprobs = {NAN, -3.0F};
  result.topk_prompt_logprobs = {{}, {{4, -0.5F}}};
  const v1::SampleResponse response = to_sample_response(result, 2, 2);
  tinker_public::SampleResponse message;
  ASSERT_TRUE(message.ParseFromString(response.response()));
  EXPECT_EQ(message.sequences(0).stop_reason(), tinker_public::STOP_REASON_STOP);
  EXPECT_EQ(numbers<int32_t>(message.sequences(0).tokens()), (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(numbers<float>(message.sequences(0).logprobs()), (std::vector<float>{-1, -2}));
  EXPECT_TRUE(std::isnan(numbers<float>(message.prompt_logprobs())[0]));
  EXPECT_EQ(message.topk_prompt_logprobs().prompt_length(), 2U);
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
  ASSERT_TRUE(message.ParseFromString(to_sample_response(result, 2, 0).response()));
  EXPECT_FALSE(message.has_prompt_logprobs() || message.has_topk_prompt_logprobs());
}

}  // namespace
}  // namespace tuft::worker
