// The records of futures. A restart reads all of them, hundreds of thousands, so they are read with simdjson.
#include <exception>
#include <optional>
#include <simdjson.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "control/persistence/record_text.h"
#include "control/persistence/records.h"

namespace tuft::control {
namespace {

using Json = nlohmann::ordered_json;
using simdjson::dom::element;

constexpr std::string_view kProtobufMark = "__tuft_proto__";

const char* protobuf_kind(OperationType operation) {
  return operation == OperationType::kSample ? "sample_response" : "forward_backward_output";
}

struct ValueJson {
  OperationType operation;

  Json operator()(const CreateModelResult& result) const {
    return {{"type", "create_model"}, {"model_id", result.run.str()}};
  }
  Json operator()(const UnloadModelResult& result) const {
    return {{"type", "unload_model"}, {"model_id", result.run.str()}};
  }
  Json operator()(const OptimStepResult& result) const { return {{"metrics", result.metrics}}; }
  Json operator()(const SaveWeightsResult& result) const { return {{"type", "save_weights"}, {"path", result.path}}; }
  Json operator()(const SaveWeightsForSamplerResult& result) const {
    Json json = {{"type", "save_weights_for_sampler"}, {"path", json_or_null(result.path)}};
    json["sampling_session_id"] = result.sampler ? Json(result.sampler->str()) : Json(nullptr);
    return json;
  }
  Json operator()(const SaveWeightsExternalResult& result) const {
    return {{"type", "save_weights_external"}, {"path", result.path}, {"size_bytes", result.size_bytes}};
  }
  Json operator()(const LoadWeightsResult& result) const {
    return {{"type", "load_weights"}, {"path", result.path}, {"model_id", result.run.str()}};
  }
  Json operator()(const CreateCustomLossResult& result) const {
    return {{"type", "create_custom_loss"}, {"loss_id", result.loss_id}};
  }
  Json operator()(const ProtobufResult& result) const {
    return {{kProtobufMark, protobuf_kind(operation)}, {"bytes", result.bytes.size()}};
  }
};

Json payload_json(const FutureRecord& record) {
  const OperationType operation = record.keys.operation;
  if (record.apart) return {{kProtobufMark, protobuf_kind(operation)}, {"bytes", *record.apart}};
  return record.value == nullptr ? Json(nullptr) : std::visit(ValueJson{operation}, *record.value);
}

// ---- reading. These throw simdjson's exceptions for wrong types and missing members.

std::string text(element json, std::string_view key) {
  return std::string(json[key].get_string().value());
}

// Returns nullopt if the member is null or missing.
std::optional<element> member(element json, std::string_view key) {
  auto found = json.get_object().value().at_key(key);
  if (found.error() == simdjson::NO_SUCH_FIELD || found.is_null()) return std::nullopt;
  return found.value();
}

std::optional<std::string> optional_text(element json, std::string_view key) {
  const auto found = member(json, key);
  return found ? std::optional(std::string(found->get_string().value())) : std::nullopt;
}

template <typename Number>
Number number(element json) {
  if constexpr (std::is_same_v<Number, uint64_t>) return json.get_uint64().value();
  const int64_t value = json.get_int64().value();
  if (!std::in_range<Number>(value)) throw simdjson::simdjson_error(simdjson::NUMBER_OUT_OF_RANGE);
  return static_cast<Number>(value);
}

std::optional<int64_t> optional_number(element json, std::string_view key) {
  const auto found = member(json, key);
  return found ? std::optional(number<int64_t>(*found)) : std::nullopt;
}

// Reads a result that is in the record itself. Older servers, and TuFT, keep those in protobuf there, too.
Result<FutureValue> value_from(OperationType operation, element json) {
  switch (operation) {
    case OperationType::kCreateModel:
      return FutureValue(CreateModelResult{RunId(optional_text(json, "model_id").value_or(""))});
    case OperationType::kUnloadModel:
      return FutureValue(UnloadModelResult{RunId(optional_text(json, "model_id").value_or(""))});
    case OperationType::kOptimStep: {
      OptimStepResult result;
      const simdjson::dom::object metrics = json["metrics"].get_object();
      for (const auto& metric : metrics) result.metrics.emplace(metric.key, metric.value.get_double().value());
      return FutureValue(std::move(result));
    }
    case OperationType::kSaveWeights:
      return FutureValue(SaveWeightsResult{text(json, "path")});
    case OperationType::kSaveWeightsForSampler: {
      SaveWeightsForSamplerResult result{optional_text(json, "path"), std::nullopt};
      if (auto id = optional_text(json, "sampling_session_id")) result.sampler = SamplerId(std::move(*id));
      return FutureValue(std::move(result));
    }
    case OperationType::kSaveWeightsExternal:
      return FutureValue(SaveWeightsExternalResult{text(json, "path"), number<int64_t>(json["size_bytes"])});
    case OperationType::kLoadWeights:
      return FutureValue(LoadWeightsResult{text(json, "path"), RunId(optional_text(json, "model_id").value_or(""))});
    case OperationType::kCreateCustomLoss:
      return FutureValue(CreateCustomLossResult{text(json, "loss_id")});
    case OperationType::kForward:
    case OperationType::kForwardBackward:
    case OperationType::kSample:
    case OperationType::kUnknown:
      break;
  }
  auto bytes = from_base64(text(json, "data"));
  if (!bytes) return data_loss("the record of a future holds data that is not base64", "bad_record");
  return FutureValue(ProtobufResult{std::move(*bytes)});
}

// ---- enumerations as words

const char* state_word(FutureSnapshot::State state) {
  switch (state) {
    case FutureSnapshot::State::kPending:
      return "pending";
    case FutureSnapshot::State::kReady:
      return "ready";
    case FutureSnapshot::State::kFailed:
      break;
  }
  return "failed";
}

FutureSnapshot::State state_from(std::string_view word) {
  if (word == "pending") return FutureSnapshot::State::kPending;
  return word == "ready" ? FutureSnapshot::State::kReady : FutureSnapshot::State::kFailed;
}

Result<OperationType> operation_from(std::string_view word) {
  if (const auto type = find_operation(word)) return *type;
  return data_loss("the record of a future names an unknown operation", "bad_record");
}

ErrorCode code_from(std::string_view word) {
  for (uint8_t i = 0; i <= static_cast<uint8_t>(ErrorCode::kInternal); ++i) {
    if (error_code_name(static_cast<ErrorCode>(i)) == word) return static_cast<ErrorCode>(i);
  }
  return ErrorCode::kInternal;
}

// Returns the HTTP status of TuFT's answer. Only TuFT's tools read it.
int status_code(const Error& error) {
  if (error.code == ErrorCode::kNotFound) return 404;
  return is_user_error(error.code) ? 400 : 500;
}

Status read(element json, FutureRecord& record) {
  record.request = RequestId(text(json, "request_id"));
  record.number = number<uint64_t>(json["future_id"]);
  record.user = UserId(text(json, "user_id"));
  record.created_at = text(json, "created_at");
  TUFT_ASSIGN(record.keys.operation, operation_from(json["operation_type"].get_string().value()));
  const element ours = json["tuft"];
  record.key = text(ours, "key");
  record.keys.request = record.request;
  record.keys.run = RunId(optional_text(json, "model_id").value_or(""));
  record.keys.session = SessionId(optional_text(ours, "session_id").value_or(""));
  record.keys.sampler = SamplerId(optional_text(ours, "sampling_session_id").value_or(""));
  record.keys.base_model = text(ours, "base_model");
  record.keys.lora_rank = number<int>(ours["lora_rank"]);
  record.keys.seq_id = optional_number(ours, "seq_id");
  record.state = state_from(json["status"].get_string().value());
  if (record.state == FutureSnapshot::State::kReady) {
    const element payload = json["payload"];
    record.apart = optional_number(payload, "bytes");
    if (record.apart) return {};
    TUFT_ASSIGN(FutureValue value, value_from(record.keys.operation, payload));
    record.value = std::make_shared<const FutureValue>(std::move(value));
  } else if (record.state == FutureSnapshot::State::kFailed) {
    record.error.code = code_from(ours["error_code"].get_string().value());
    record.error.reason = text(ours, "error_reason");
    record.error.message = text(json["error"], "detail");
  }
  return {};
}

}  // namespace

std::string to_json(const FutureRecord& record) {
  const OperationKeys& keys = record.keys;
  Json json;
  json["request_id"] = record.request.str();
  json["future_id"] = record.number;
  json["model_id"] = keys.run.empty() ? Json(nullptr) : Json(keys.run.str());
  json["user_id"] = record.user.str();
  json["queue_state"] = "active";
  json["status"] = state_word(record.state);
  json["payload"] = payload_json(record);
  json["error"] = nullptr;
  if (record.state == FutureSnapshot::State::kFailed) {
    json["error"] = {{"status_code", status_code(record.error)}, {"detail", record.error.message}};
  }
  json["operation_type"] = operation_name(keys.operation);
  json["created_at"] = record.created_at;
  Json& ours = json["tuft"];
  ours["key"] = record.key;
  ours["session_id"] = keys.session.str();
  ours["sampling_session_id"] = keys.sampler.str();
  ours["base_model"] = keys.base_model;
  ours["lora_rank"] = keys.lora_rank;
  ours["seq_id"] = json_or_null(keys.seq_id);
  if (record.state == FutureSnapshot::State::kFailed) {
    ours["error_code"] = error_code_name(record.error.code);
    ours["error_reason"] = record.error.reason;
  }
  return text_of(json);
}

Result<FutureRecord> future_from_json(std::string_view text) {
  // It keeps memory for the largest text so far.
  constexpr size_t kKeptMax = 1 << 16;
  thread_local simdjson::dom::parser kept;
  simdjson::dom::parser own;
  try {
    FutureRecord record;
    const element json = (text.size() <= kKeptMax ? kept : own).parse(text.data(), text.size());
    TUFT_TRY(read(json, record));
    return record;
  } catch (const std::exception& error) {
    return data_loss(std::string("the record of a future cannot be read: ") + error.what(), "bad_record");
  }
}

}  // namespace tuft::control
