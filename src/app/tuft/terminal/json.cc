#include "app/tuft/terminal/json.h"

namespace tuft::terminal {

const Json& field_of(const Json& value, std::string_view key) {
  static const Json kNull;
  if (!value.is_object()) return kNull;
  const auto found = value.find(key);
  return found == value.end() ? kNull : *found;
}

std::string text_of(const Json& value, std::string_view key) {
  const Json& field = field_of(value, key);
  if (field.is_string()) return field.get<std::string>();
  return field.is_number() || field.is_boolean() ? field.dump() : "";
}

std::optional<double> number_of(const Json& value, std::string_view key) {
  const Json& field = field_of(value, key);
  if (!field.is_number()) return std::nullopt;
  return field.get<double>();
}

bool flag_of(const Json& value, std::string_view key) {
  const Json& field = field_of(value, key);
  return field.is_boolean() && field.get<bool>();
}

const Json& list_of(const Json& value, std::string_view key) {
  static const Json kEmpty = Json::array();
  const Json& field = field_of(value, key);
  return field.is_array() ? field : kEmpty;
}

std::string safe_json(const Json& value, int indent) {
  return value.dump(indent, ' ', true, Json::error_handler_t::replace);
}

}  // namespace tuft::terminal
