#include "app/tuft/terminal/json.h"

#include <array>
#include <charconv>
#include <cmath>

namespace tuft::terminal {
namespace {

constexpr double kExactMax = 9e15;  // of numbers that are written without an exponent

void append_float(std::string& out, double value) {
  std::array<char, 64> text{};
  const bool is_plain = std::abs(value) < kExactMax && (value == 0 || std::abs(value) >= 1e-6);
  const auto form = is_plain ? std::chars_format::fixed : std::chars_format::general;
  out.append(text.data(), std::to_chars(text.data(), text.data() + text.size(), value, form).ptr);
}

void append_json(std::string& out, const Json& value) {
  if (value.is_number_float() && std::isfinite(value.get<double>())) return append_float(out, value.get<double>());
  if (!value.is_structured()) {
    out += value.dump(-1, ' ', true, Json::error_handler_t::replace);
    return;
  }
  out += value.is_array() ? '[' : '{';
  bool first = true;
  for (const auto& item : value.items()) {
    if (!first) out += ',';
    first = false;
    if (value.is_object()) out += Json(item.key()).dump(-1, ' ', true, Json::error_handler_t::replace) + ":";
    append_json(out, item.value());
  }
  out += value.is_array() ? ']' : '}';
}

}  // namespace

const Json& field_of(const Json& value, std::string_view key) {
  static const Json null;
  if (!value.is_object()) return null;
  const auto found = value.find(key);
  return found == value.end() ? null : *found;
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
  static const Json empty = Json::array();
  const Json& field = field_of(value, key);
  return field.is_array() ? field : empty;
}

std::string safe_json(const Json& value) {
  std::string out;
  append_json(out, value);
  return out;
}

}  // namespace tuft::terminal
