#include "api/json/future_json.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>

#include "api/json/json_writer.h"
#include "api/json/result_views.h"

namespace tuft::api {
namespace {

// Numbers are written in blocks, after which a piece may end.
constexpr size_t kBlockBytes = 32 << 10;

bool is_full(const JsonWriter& json) {
  return json.size() >= kJsonPieceBytes;
}

// Leaves out metrics that are not finite: JSON cannot express them, and the SDK does not accept null.
template <typename Map>
void write_metrics(JsonWriter& json, const Map& metrics) {
  json.key("metrics").begin_object();
  for (const auto& [name, value] : metrics) {
    if (std::isfinite(value)) json.key(name).number(value);
  }
  json.end_object();
}

template <typename T>
void write_integers(JsonWriter& json, std::string_view bytes) {
  const PackedNumbers<T> values(bytes);
  for (size_t i = 0; i < values.size(); ++i) json.integer(values[i]);
}

void write_floats(JsonWriter& json, std::string_view bytes) {
  const PackedNumbers<float> values(bytes);
  for (size_t i = 0; i < values.size(); ++i) json.number(values[i]);
}

void write_bfloat16s(JsonWriter& json, std::string_view bytes) {
  const PackedNumbers<uint16_t> values(bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    json.number(std::bit_cast<float>(static_cast<uint32_t>(values[i]) << 16));
  }
}

void write_elements(JsonWriter& json, tinker_public::DType dtype, std::string_view bytes) {
  switch (dtype) {
    case tinker_public::DTYPE_INT64:
      return write_integers<int64_t>(json, bytes);
    case tinker_public::DTYPE_INT32:
      return write_integers<int32_t>(json, bytes);
    case tinker_public::DTYPE_BFLOAT16:
      return write_bfloat16s(json, bytes);
    default:
      return write_floats(json, bytes);
  }
}

// Writes what follows the elements of a tensor.
void end_tensor(JsonWriter& json, const TensorView& tensor, size_t elements) {
  const bool is_integer = tensor.dtype == tinker_public::DTYPE_INT64 || tensor.dtype == tinker_public::DTYPE_INT32;
  json.end_array().key("dtype").string(is_integer ? "int64" : "float32");
  json.key("shape").begin_array().integer(static_cast<int64_t>(elements) / tensor.row_elements);
  for (const int64_t size : tensor.trailing_shape) json.integer(size);
  json.end_array().end_object();
}

// `value` owns what `pass` refers to.
JsonPieces pass_pieces([[maybe_unused]] std::shared_ptr<const control::FutureValue> value, PassView pass) {
  JsonWriter json;
  json.begin_object().key("loss_fn_output_type").string(pass.output_type);
  json.key("loss_fn_outputs").begin_array();
  for (const RecordView& record : pass.records) {
    for (int64_t datum = 0; datum < record.datums; ++datum) {
      json.begin_object();
      for (const TensorView& tensor : record.tensors) {
        const std::string_view bytes = tensor.of(datum);
        json.key(tensor.name).begin_object().key("data").begin_array();
        for (size_t at = 0; at < bytes.size(); at += kBlockBytes) {
          write_elements(json, tensor.dtype, bytes.substr(at, kBlockBytes));
          if (is_full(json)) co_yield json.take_piece();
        }
        end_tensor(json, tensor, bytes.size() / tensor.element_bytes);
      }
      json.end_object();
      if (is_full(json)) co_yield json.take_piece();
    }
  }
  json.end_array();
  write_metrics(json, pass.metrics);
  json.end_object();
  co_yield json.take_piece();
}

// ---- samples

void write_topk_row(JsonWriter& json, const TopkView& topk, size_t row) {
  constexpr float kUnused = -99999.0F;
  const size_t begin = row * topk.columns;
  if (topk.logprobs[begin] == kUnused) {
    json.null();
    return;
  }
  json.begin_array();
  for (size_t cell = begin; cell < begin + topk.columns && topk.logprobs[cell] != kUnused; ++cell) {
    json.begin_array().integer(topk.tokens[cell]).number(topk.logprobs[cell]).end_array();
  }
  json.end_array();
}

// What follows writes parts of the answer to `json`, and ends pieces where there is enough. What is passed by reference
// must outlive the pieces.

JsonPieces list_pieces(JsonWriter& json, tinker_public::DType dtype, std::string_view bytes) {
  json.begin_array();
  for (size_t at = 0; at < bytes.size(); at += kBlockBytes) {
    write_elements(json, dtype, bytes.substr(at, kBlockBytes));
    if (is_full(json)) co_yield json.take_piece();
  }
  json.end_array();
}

JsonPieces topk_pieces(JsonWriter& json, const TopkView& topk) {
  json.begin_array();
  for (size_t row = 0; row < topk.rows; ++row) {
    write_topk_row(json, topk, row);
    if (is_full(json)) co_yield json.take_piece();
  }
  json.end_array();
}

JsonPieces sequence_pieces(JsonWriter& json, const SequenceView& sequence) {
  json.begin_object().key("stop_reason").string(sequence.stopped ? "stop" : "length").key("tokens");
  JsonPieces tokens = list_pieces(json, tinker_public::DTYPE_INT32, sequence.tokens);
  while (tokens.next()) co_yield std::move(tokens.value());
  if (sequence.logprobs) {
    json.key("logprobs");
    JsonPieces logprobs = list_pieces(json, tinker_public::DTYPE_FLOAT32, *sequence.logprobs);
    while (logprobs.next()) co_yield std::move(logprobs.value());
  }
  if (sequence.topk) {
    json.key("topk_logprobs");
    JsonPieces topk = topk_pieces(json, *sequence.topk);
    while (topk.next()) co_yield std::move(topk.value());
  }
  json.end_object();
}

JsonPieces array_pieces(JsonWriter& json, const ArrayView& array) {
  json.begin_object().key("data");
  JsonPieces data = list_pieces(json, array.dtype, array.data);
  while (data.next()) co_yield std::move(data.value());
  const bool is_integer = array.dtype == tinker_public::DTYPE_INT64 || array.dtype == tinker_public::DTYPE_INT32;
  json.key("dtype").string(is_integer ? "int64" : "float32").key("shape").begin_array();
  for (const int64_t size : array.shape) json.integer(size);
  json.end_array();
  if (array.crow_indices && array.col_indices) {
    json.key("sparse_crow_indices");
    JsonPieces rows = list_pieces(json, tinker_public::DTYPE_INT64, *array.crow_indices);
    while (rows.next()) co_yield std::move(rows.value());
    json.key("sparse_col_indices");
    JsonPieces columns = list_pieces(json, tinker_public::DTYPE_INT64, *array.col_indices);
    while (columns.next()) co_yield std::move(columns.value());
  }
  json.end_object();
}

// What the answer says about the prompt.
JsonPieces prompt_pieces(JsonWriter& json, const SampleView& sample) {
  if (sample.prompt_logprobs) {
    json.key("prompt_logprobs");
    JsonPieces logprobs = list_pieces(json, tinker_public::DTYPE_FLOAT32, *sample.prompt_logprobs);
    while (logprobs.next()) co_yield std::move(logprobs.value());
  }
  if (sample.topk) {
    json.key("topk_prompt_logprobs");
    JsonPieces topk = topk_pieces(json, *sample.topk);
    while (topk.next()) co_yield std::move(topk.value());
  }
  if (sample.targets) {
    json.key("target_prompt_logprobs");
    JsonPieces targets = array_pieces(json, *sample.targets);
    while (targets.next()) co_yield std::move(targets.value());
  }
  if (sample.alternatives) {
    json.key("prompt_alt_tokens").begin_object().key("tokens");
    JsonPieces tokens = array_pieces(json, sample.alternatives->tokens);
    while (tokens.next()) co_yield std::move(tokens.value());
    json.key("logprobs");
    JsonPieces logprobs = array_pieces(json, sample.alternatives->logprobs);
    while (logprobs.next()) co_yield std::move(logprobs.value());
    json.end_object();
  }
}

// `value` owns what `sample` refers to.
JsonPieces sample_pieces([[maybe_unused]] std::shared_ptr<const control::FutureValue> value, SampleView sample) {
  JsonWriter json;
  json.begin_object().key("type").string("sample").key("sequences").begin_array();
  for (const SequenceView& sequence : sample.sequences) {
    JsonPieces pieces = sequence_pieces(json, sequence);
    while (pieces.next()) co_yield std::move(pieces.value());
    if (is_full(json)) co_yield json.take_piece();
  }
  json.end_array();
  JsonPieces pieces = prompt_pieces(json, sample);
  while (pieces.next()) co_yield std::move(pieces.value());
  json.key("prompt_cache_hit_tokens").integer(sample.cached_tokens).end_object();
  co_yield json.take_piece();
}

// ---- everything else

struct ValueWriter {
  control::OperationType operation;
  const std::shared_ptr<const control::FutureValue>& value;

  Result<std::string> operator()(const control::CreateModelResult& result) const {
    JsonWriter json;
    json.begin_object().key("type").string("create_model").key("model_id").string(result.run.str()).end_object();
    return std::move(json).take();
  }
  Result<std::string> operator()(const control::UnloadModelResult& result) const {
    JsonWriter json;
    json.begin_object().key("type").string("unload_model").key("model_id").string(result.run.str()).end_object();
    return std::move(json).take();
  }
  Result<std::string> operator()(const control::OptimStepResult& result) const {
    JsonWriter json;
    json.begin_object();
    write_metrics(json, result.metrics);
    json.end_object();
    return std::move(json).take();
  }
  Result<std::string> operator()(const control::SaveWeightsResult& result) const {
    JsonWriter json;
    json.begin_object().key("type").string("save_weights").key("path").string(result.path).end_object();
    return std::move(json).take();
  }
  Result<std::string> operator()(const control::SaveWeightsForSamplerResult& result) const {
    JsonWriter json;
    json.begin_object().key("type").string("save_weights_for_sampler");
    if (result.path) json.key("path").string(*result.path);
    if (result.sampler) json.key("sampling_session_id").string(result.sampler->str());
    json.end_object();
    return std::move(json).take();
  }
  Result<std::string> operator()(const control::SaveWeightsExternalResult& result) const {
    JsonWriter json;
    json.begin_object().key("type").string("save_weights_external").key("path").string(result.path);
    json.key("size_bytes").integer(result.size_bytes).end_object();
    return std::move(json).take();
  }
  Result<std::string> operator()(const control::LoadWeightsResult& result) const {
    JsonWriter json;
    json.begin_object().key("type").string("load_weights").key("path").string(result.path);
    json.key("model_id").string(result.run.str()).end_object();
    return std::move(json).take();
  }
  Result<std::string> operator()(const control::CreateCustomLossResult& result) const {
    JsonWriter json;
    json.begin_object().key("type").string("create_custom_loss").key("loss_id").string(result.loss_id).end_object();
    return std::move(json).take();
  }
  Result<std::string> operator()(const control::ProtobufResult&) const {
    TUFT_ASSIGN(JsonPieces pieces, result_pieces(operation, value));
    std::string json;
    while (pieces.next()) json.append(pieces.value());
    return json;
  }
};

}  // namespace

Result<JsonPieces> result_pieces(control::OperationType operation, std::shared_ptr<const control::FutureValue> value) {
  const std::string& bytes = std::get<control::ProtobufResult>(*value).bytes;
  if (operation == control::OperationType::kSample) {
    TUFT_ASSIGN(SampleView sample, view_sample(bytes));
    return sample_pieces(std::move(value), std::move(sample));
  }
  TUFT_ASSIGN(PassView pass, view_pass(bytes));
  return pass_pieces(std::move(value), std::move(pass));
}

Result<std::string> future_value_json(control::OperationType operation,
                                      const std::shared_ptr<const control::FutureValue>& value) {
  return std::visit(ValueWriter{operation, value}, *value);
}

}  // namespace tuft::api
