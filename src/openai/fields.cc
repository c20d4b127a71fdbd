#include "openai/fields.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/json_shape.h"

namespace tuft::openai {
namespace {

std::string between(const std::string& what, const std::string& min, const std::string& max) {
  return "must be " + what + " between " + min + " and " + max;
}

std::string short_number(double value) {
  return Json(value).dump();
}

}  // namespace

const Json* Fields::find(std::string_view name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t min, int64_t max) const {
  const Json* field = find(name);
  if (field == nullptr) return std::nullopt;
  const bool over = field->is_number_unsigned() &&
                    field->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!field->is_number_integer() || over || field->get<int64_t>() < min || field->get<int64_t>() > max) {
    wrong(name, between("an integer", std::to_string(min), std::to_string(max)));
    return std::nullopt;
  }
  return field->get<int64_t>();
}

std::optional<double> Fields::number(std::string_view name, double min, double max) const {
  const Json* field = find(name);
  if (field == nullptr) return std::nullopt;
  const double value = field->is_number() ? field->get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (!(value >= min && value <= max)) {
    wrong(name, between("a number", short_number(min), short_number(max)));
    return std::nullopt;
  }
  return value;
}

bool Fields::boolean(std::string_view name, bool absent) const {
  const Json* field = find(name);
  if (field == nullptr) return absent;
  if (!field->is_boolean()) {
    wrong(name, "must be true or false");
    return absent;
  }
  return field->get<bool>();
}

std::optional<std::string> Fields::string(std::string_view name) const {
  const Json* field = find(name);
  if (field == nullptr) return std::nullopt;
  if (!field->is_string()) {
    wrong(name, "must be a string");
    return std::nullopt;
  }
  return field->get<std::string>();
}

void Fields::refuse(std::string_view name, const Json& harmless) const {
  const Json* field = find(name);
  if (field == nullptr || *field == harmless) return;
  wrong(name, "is not supported by this server; leave it out");
}

Result<Json> parse_object(std::string_view text, int depth_max) {
  // Copying and writing a JSON value needs stack space in proportion to its depth.
  if (json_shape(text).depth > depth_max) {
    return invalid_argument("the body has more than " + std::to_string(depth_max) + " levels of lists and objects",
                            "invalid_json");
  }
  std::optional<Json> json = parse_json(text);
  if (!json) return invalid_argument("the body is not valid JSON", "invalid_json");
  if (!json->is_object()) return invalid_argument("the body must be a JSON object", "invalid_json");
  return std::move(*json);
}

}  // namespace tuft::openai
