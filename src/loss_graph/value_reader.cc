#include "loss_graph/value_reader.h"

#include <array>
#include <limits>
#include <string_view>
#include <utility>

namespace tuft::loss_graph {
namespace {

constexpr size_t kTextMax = 256;

Error invalid(std::string what) {
  return invalid_argument(std::move(what), "custom_loss_invalid");
}
Error too_large(std::string what) {
  return {ErrorCode::kPayloadTooLarge, std::move(what), "custom_loss_too_large"};
}

Result<Value> read_float(const ValueReader::Json& json) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (json == "inf") return Value::of_float(kInfinity);
  if (json == "-inf") return Value::of_float(-kInfinity);
  if (json == "nan") return Value::of_float(std::numeric_limits<double>::quiet_NaN());
  return invalid("a float must be inf, -inf or nan");
}

Result<Value> read_dtype(const ValueReader::Json& json) {
  constexpr std::array<std::pair<std::string_view, Dtype>, 9> kDtypes = {{{"float32", Dtype::kFloat},
                                                                          {"float64", Dtype::kFloat},
                                                                          {"float", Dtype::kFloat},
                                                                          {"double", Dtype::kFloat},
                                                                          {"int64", Dtype::kInt},
                                                                          {"int32", Dtype::kInt},
                                                                          {"long", Dtype::kInt},
                                                                          {"int", Dtype::kInt},
                                                                          {"bool", Dtype::kBool}}};
  for (const auto& [name, dtype] : kDtypes) {
    if (json == name) return Value::of_dtype(dtype);
  }
  return invalid("its dtype is not allowed; allowed are float32, float64, int64, int32 and bool");
}

Result<Value> read_device(const ValueReader::Json& json) {
  if (json == "cpu") return Value{.kind = Value::Kind::kDevice};
  return invalid("the only device is cpu; leave the device out");
}

}  // namespace

Result<Value> ValueReader::read(const Json& json, int depth) {
  if (values_left_ == 0) {
    return too_large("a custom loss has at most " + std::to_string(limits_.values) + " values in its arguments");
  }
  --values_left_;
  if (depth > limits_.depth) {
    return too_large("its arguments are nested more than " + std::to_string(limits_.depth) + " deep");
  }
  switch (json.type()) {
    case Json::value_t::null:
      return Value::none();
    case Json::value_t::boolean:
      return Value::of_bool(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::of_int(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return invalid("an integer is too large");
      }
      return Value::of_int(json.get<int64_t>());
    case Json::value_t::number_float:
      return Value::of_float(json.get<double>());
    case Json::value_t::string: {
      if (json.get_ref<const std::string&>().size() > kTextMax) return too_large("a string is too long");
      Value text{.kind = Value::Kind::kString};
      text.text = json.get<std::string>();
      return text;
    }
    case Json::value_t::array: {
      TUFT_ASSIGN(std::vector<Value> items, read_items(json, depth));
      return Value::list(std::move(items));
    }
    case Json::value_t::object:
      if (json.size() == 1) return read_object(json.begin().key(), json.begin().value(), depth);
      break;
    default:
      break;
  }
  return invalid("an argument must be a value, a list, or an object with one key, such as {\"ref\": name}");
}

Result<Value> ValueReader::read_object(const std::string& kind, const Json& json, int depth) {
  if (kind == "ref") {
    const auto node = json.is_string() ? nodes_.find(json.get_ref<const std::string&>()) : nodes_.end();
    if (node == nodes_.end()) return invalid("it refers to a node that does not come before it");
    return Value{.kind = Value::Kind::kNode, .integer = node->second};
  }
  if (kind == "tuple") {
    TUFT_ASSIGN(std::vector<Value> items, read_items(json, depth));
    return Value::tuple(std::move(items));
  }
  if (kind == "slice") {
    TUFT_ASSIGN(std::vector<Value> items, read_items(json, depth));
    if (items.size() != 3) return invalid("a slice has three values");
    return Value{.kind = Value::Kind::kSlice, .items = std::move(items)};
  }
  if (kind == "dict") return read_dict(json, depth);
  if (kind == "ellipsis") return Value{.kind = Value::Kind::kEllipsis};
  if (kind == "float") return read_float(json);
  if (kind == "dtype") return read_dtype(json);
  if (kind == "device") return read_device(json);
  if (kind == "layout" || kind == "memory_format") return Value{.kind = Value::Kind::kDevice};
  return invalid("an argument is of a kind that this server does not know");
}

Result<std::vector<Value>> ValueReader::read_items(const Json& json, int depth) {
  if (!json.is_array()) return invalid("a tuple or slice must be a list");
  std::vector<Value> items;
  for (const Json& item : json) {
    TUFT_ASSIGN(Value value, read(item, depth + 1));
    items.push_back(std::move(value));
  }
  return items;
}

Result<Value> ValueReader::read_dict(const Json& json, int depth) {
  if (!json.is_object()) return invalid("a dict must be an object");
  Value dict{.kind = Value::Kind::kDict};
  for (const auto& [key, item] : json.items()) {
    TUFT_ASSIGN(Value value, read(item, depth + 1));
    dict.keys.push_back(key);
    dict.items.push_back(std::move(value));
  }
  return dict;
}

}  // namespace tuft::loss_graph
