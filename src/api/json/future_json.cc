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

// `value` owns what `sample` refers to.
JsonPieces sample_pieces([[maybe_unused]] std::shared_ptr<const control::FutureValue> value, SampleView sample) {
  JsonWriter json;
  json.begin_object().key("type").string("sample").key("sequences").begin_array();
  for (const SequenceView& sequence : sample.sequences) {
    json.begin_object().key("stop_reason").string(sequence.stopped ? "stop" : "length").key("tokens").begin_array();
    for (size_t at = 0; at < sequence.tokens.size(); at += kBlockBytes) {
      write_integers<int32_t>(json, sequence.tokens.substr(at, kBlockBytes));
      if (is_full(json)) co_yield json.take_piece();
    }
    json.end_array();
    if (sequence.logprobs) {
      json.key("logprobs").begin_array();
      for (size_t at = 0; at < sequence.logprobs->size(); at += kBlockBytes) {
        write_floats(json, sequence.logprobs->substr(at, kBlockBytes));
        if (is_full(json)) co_yield json.take_piece();
      }
      json.end_array();
    }
    json.end_object();
    if (is_full(json)) co_yield json.take_piece();
  }
  json.end_array();
  if (sample.prompt_logprobs) {
    json.key("prompt_logprobs").begin_array();
    for (size_t at = 0; at < sample.prompt_logprobs->size(); at += kBlockBytes) {
      write_floats(json, sample.prompt_logprobs->substr(at, kBlockBytes));
      if (is_full(json)) co_yield json.take_piece();
    }
    json.end_array();
  }
  if (sample.topk) {
    json.key("topk_prompt_logprobs").begin_array();
    for (size_t row = 0; row < sample.topk->rows; ++row) {
      write_topk_row(json, *sample.topk, row);
      if (is_full(json)) co_yield json.take_piece();
    }
    json.end_array();
  }
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
  Result<std::string> operator()(const control::LoadWeightsResult& result) const {
    JsonWriter json;
    json.begin_object().key("type").string("load_weights").key("path").string(result.path);
    json.key("model_id").string(result.run.str()).end_object();
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
