#include "api/json/future_json.h"

#include <cmath>
#include <cstring>
#include <variant>
#include <vector>

#include "api/json/json_writer.h"

namespace tuft::api {
namespace {

// Reads numbers from the little-endian bytes of a protobuf field.
template <typename T>
class PackedNumbers {
 public:
  explicit PackedNumbers(std::string_view bytes) : bytes_(bytes) {}
  size_t size() const { return bytes_.size() / sizeof(T); }
  T operator[](size_t index) const {
    T value;
    std::memcpy(&value, bytes_.data() + index * sizeof(T), sizeof(T));
    return value;
  }

 private:
  std::string_view bytes_;
};

Error damaged(std::string_view what) {
  return internal_error("the result is damaged: " + std::string(what));
}

void write_floats(JsonWriter& json, std::string_view bytes) {
  const PackedNumbers<float> values(bytes);
  json.begin_array();
  for (size_t i = 0; i < values.size(); ++i) json.number(values[i]);
  json.end_array();
}

void write_int32s(JsonWriter& json, std::string_view bytes) {
  const PackedNumbers<int32_t> values(bytes);
  json.begin_array();
  for (size_t i = 0; i < values.size(); ++i) json.integer(values[i]);
  json.end_array();
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

// ---- passes

void write_element(JsonWriter& json, tinker_public::DType dtype, std::string_view bytes) {
  uint16_t half = 0;
  float real = 0;
  switch (dtype) {
    case tinker_public::DTYPE_INT64:
      json.integer(PackedNumbers<int64_t>(bytes)[0]);
      break;
    case tinker_public::DTYPE_INT32:
      json.integer(PackedNumbers<int32_t>(bytes)[0]);
      break;
    case tinker_public::DTYPE_BFLOAT16: {
      std::memcpy(&half, bytes.data(), sizeof(half));
      const uint32_t bits = static_cast<uint32_t>(half) << 16;
      std::memcpy(&real, &bits, sizeof(real));
      json.number(real);
      break;
    }
    default:
      json.number(PackedNumbers<float>(bytes)[0]);
  }
}

size_t element_bytes(tinker_public::DType dtype) {
  switch (dtype) {
    case tinker_public::DTYPE_INT64:
      return 8;
    case tinker_public::DTYPE_FLOAT32:
    case tinker_public::DTYPE_INT32:
      return 4;
    case tinker_public::DTYPE_BFLOAT16:
      return 2;
    default:
      return 0;
  }
}

Status write_tensor(JsonWriter& json, const tinker_public::BatchedTensor& field, int64_t datum) {
  const PackedNumbers<int64_t> offsets(field.offsets());
  const size_t width = element_bytes(field.dtype());
  if (width == 0 || offsets.size() < static_cast<size_t>(datum) + 2) return damaged("tensor header");
  const int64_t begin = offsets[static_cast<size_t>(datum)];
  const int64_t end = offsets[static_cast<size_t>(datum) + 1];
  const auto total = static_cast<int64_t>(field.data().size());
  if (begin < 0 || begin > end || end > total || (end - begin) % static_cast<int64_t>(width) != 0) {
    return damaged("tensor offsets");
  }
  const std::string_view bytes(field.data().data() + begin, static_cast<size_t>(end - begin));
  const size_t count = bytes.size() / width;
  json.begin_object().key("data").begin_array();
  for (size_t i = 0; i < count; ++i) write_element(json, field.dtype(), bytes.substr(i * width, width));
  json.end_array();
  const bool is_integer = field.dtype() == tinker_public::DTYPE_INT64 || field.dtype() == tinker_public::DTYPE_INT32;
  json.key("dtype").string(is_integer ? "int64" : "float32");
  int64_t inner = 1;
  for (const int64_t size : field.trailing_shape()) inner *= size;
  if (inner <= 0) return damaged("tensor shape");
  json.key("shape").begin_array().integer(static_cast<int64_t>(count) / inner);
  for (const int64_t size : field.trailing_shape()) json.integer(size);
  json.end_array().end_object();
  return {};
}

Result<std::string> pass_json(const std::string& bytes) {
  tinker_public::ForwardBackwardOutput output;
  if (!output.ParseFromString(bytes)) return damaged("ForwardBackwardOutput");
  JsonWriter json;
  json.reserve(bytes.size() * 3);
  json.begin_object().key("loss_fn_output_type").string(output.loss_fn_output_type());
  json.key("loss_fn_outputs").begin_array();
  for (const tinker_public::ArrayRecord& record : output.loss_fn_outputs()) {
    for (int64_t datum = 0; datum < record.num_datums(); ++datum) {
      json.begin_object();
      for (const auto& [name, field] : record.fields()) {
        json.key(name);
        TUFT_TRY(write_tensor(json, field, datum));
      }
      json.end_object();
    }
  }
  json.end_array();
  write_metrics(json, output.metrics());
  json.end_object();
  return std::move(json).take();
}

// ---- samples

Status write_topk(JsonWriter& json, const tinker_public::TopkPromptLogprobs& topk) {
  constexpr float kUnused = -99999.0F;
  const PackedNumbers<int32_t> tokens(topk.token_ids());
  const PackedNumbers<float> logprobs(topk.logprobs());
  const size_t cells = static_cast<size_t>(topk.k()) * topk.prompt_length();
  if (tokens.size() != cells || logprobs.size() != cells || topk.k() == 0) return damaged("top-k logprobs");
  json.begin_array();
  for (size_t row = 0; row < cells; row += topk.k()) {
    if (logprobs[row] == kUnused) {
      json.null();
      continue;
    }
    json.begin_array();
    for (size_t cell = row; cell < row + topk.k() && logprobs[cell] != kUnused; ++cell) {
      json.begin_array().integer(tokens[cell]).number(logprobs[cell]).end_array();
    }
    json.end_array();
  }
  json.end_array();
  return {};
}

Result<std::string> sample_json(const std::string& bytes) {
  tinker_public::SampleResponse sample;
  if (!sample.ParseFromString(bytes)) return damaged("SampleResponse");
  JsonWriter json;
  json.reserve(bytes.size() * 3);
  json.begin_object().key("type").string("sample").key("sequences").begin_array();
  for (const tinker_public::SampledSequence& sequence : sample.sequences()) {
    const bool stopped = sequence.stop_reason() == tinker_public::STOP_REASON_STOP;
    json.begin_object().key("stop_reason").string(stopped ? "stop" : "length").key("tokens");
    write_int32s(json, sequence.tokens());
    if (sequence.has_logprobs()) {
      json.key("logprobs");
      write_floats(json, sequence.logprobs());
    }
    json.end_object();
  }
  json.end_array();
  if (sample.has_prompt_logprobs()) {
    json.key("prompt_logprobs");
    write_floats(json, sample.prompt_logprobs());
  }
  if (sample.has_topk_prompt_logprobs()) {
    json.key("topk_prompt_logprobs");
    TUFT_TRY(write_topk(json, sample.topk_prompt_logprobs()));
  }
  json.key("prompt_cache_hit_tokens").integer(sample.prompt_cache_hit_tokens()).end_object();
  return std::move(json).take();
}

// ---- everything else

struct ValueWriter {
  control::OperationType operation;

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
  Result<std::string> operator()(const control::ProtobufResult& result) const {
    return operation == control::OperationType::kSample ? sample_json(result.bytes) : pass_json(result.bytes);
  }
};

}  // namespace

Result<std::string> future_value_json(control::OperationType operation, const control::FutureValue& value) {
  return std::visit(ValueWriter{operation}, value);
}

}  // namespace tuft::api
