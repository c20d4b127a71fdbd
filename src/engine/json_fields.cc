#include "engine/json_fields.h"

#include <cmath>
#include <set>

namespace tuft::engine {
namespace {

std::string number_text(double value) {
  return Json(value).dump();
}
std::string number_text(int64_t value) {
  return std::to_string(value);
}

bool to_integer(const Json& value, int64_t* out) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return false;
  if (!value.is_number_integer()) return false;
  *out = value.get<int64_t>();
  return true;
}

}  // namespace

Result<Json> parse_json_object(std::string_view text, std::string_view origin) {
  std::vector<std::set<std::string>> seen;
  std::string twice;
  const auto watch = [&](int /*depth*/, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) seen.emplace_back();
    if (event == Json::parse_event_t::object_end) seen.pop_back();
    if (event == Json::parse_event_t::key && !seen.back().insert(value.get_ref<const std::string&>()).second &&
        twice.empty()) {
      twice = value.get<std::string>();
    }
    return true;
  };
  Json parsed = Json::parse(text, watch, /*allow_exceptions=*/false);
  const std::string name(origin);
  if (parsed.is_discarded()) return invalid_argument(name + " is not valid JSON", "bad_json");
  if (!parsed.is_object()) return invalid_argument(name + " must be a JSON object", "bad_json");
  if (!twice.empty()) return invalid_argument(name + " has the key '" + twice + "' twice", "bad_json");
  return parsed;
}

const Json* JsonFields::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool JsonFields::has(const char* key) const {
  return find(key) != nullptr;
}

void JsonFields::fail(const std::string& what) {
  if (status_.ok()) status_ = invalid_argument(origin_ + ": " + what, "bad_json");
}

bool JsonFields::check_range(const char* key, double value, double min, double max) {
  if (value >= min && value <= max) return true;
  fail(std::string(key) + " is " + number_text(value) + "; it must be between " + number_text(min) + " and " +
       number_text(max));
  return false;
}

int64_t JsonFields::integer(const char* key, std::optional<int64_t> fallback, int64_t min, int64_t max) {
  const Json* value = find(key);
  if (value == nullptr) {
    if (!fallback) fail(std::string(key) + " is missing");
    return fallback.value_or(min);
  }
  int64_t number = 0;
  if (!to_integer(*value, &number)) {
    fail(std::string(key) + " must be a whole number");
  } else if (number < min || number > max) {
    fail(std::string(key) + " is " + number_text(number) + "; it must be between " + number_text(min) + " and " +
         number_text(max));
  } else {
    return number;
  }
  return fallback.value_or(min);
}

double JsonFields::number(const char* key, std::optional<double> fallback, double min, double max) {
  const Json* value = find(key);
  if (value == nullptr) {
    if (!fallback) fail(std::string(key) + " is missing");
    return fallback.value_or(min);
  }
  if (!value->is_number()) {
    fail(std::string(key) + " must be a number");
  } else if (const double number = value->get<double>(); check_range(key, number, min, max)) {
    return number;
  }
  return fallback.value_or(min);
}

bool JsonFields::boolean(const char* key, bool fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  fail(std::string(key) + " must be true or false");
  return fallback;
}

std::string JsonFields::text(const char* key, const std::string& fallback) {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_string()) return value->get<std::string>();
  fail(std::string(key) + " must be a string");
  return fallback;
}

std::vector<std::string> JsonFields::texts(const char* key) {
  std::vector<std::string> out;
  const Json* value = find(key);
  if (value == nullptr) return out;
  if (!value->is_array()) {
    fail(std::string(key) + " must be a list of strings");
    return out;
  }
  for (const Json& item : *value) {
    if (!item.is_string()) {
      fail(std::string(key) + " must be a list of strings");
      return {};
    }
    out.push_back(item.get<std::string>());
  }
  return out;
}

std::vector<int32_t> JsonFields::integers(const char* key, int64_t min, int64_t max) {
  std::vector<int32_t> out;
  const Json* value = find(key);
  if (value == nullptr) return out;
  const auto take = [&](const Json& item) {
    int64_t number = 0;
    if (!to_integer(item, &number)) {
      fail(std::string(key) + " must be a whole number or a list of them");
    } else if (number < min || number > max) {
      fail(std::string(key) + " holds " + number_text(number) + "; it must be between " + number_text(min) + " and " +
           number_text(max));
    } else {
      out.push_back(static_cast<int32_t>(number));
    }
  };
  if (value->is_array()) {
    for (const Json& item : *value) take(item);
  } else {
    take(*value);
  }
  return out;
}

}  // namespace tuft::engine
