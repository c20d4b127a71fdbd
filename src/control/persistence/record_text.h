// The text of a record.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace tuft::control {

// Text from clients need not be UTF-8, and must not make a record fail.
inline std::string text_of(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

template <typename T>
nlohmann::ordered_json json_or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace tuft::control
