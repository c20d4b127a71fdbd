// Reads whole numbers from JSON objects.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace tuft::control {

// Returns the member `key` of an object of nlohmann's library. Throws, as that library does for other types and missing
// members, also if it is not a whole number that `Number` can hold: the library itself would cast 1e74 or 2^40 to an
// int.
template <typename Number, typename Json>
Number whole_number(const Json& object, const char* key) {
  const Json& value = object.at(key);
  const bool fits = value.is_number_unsigned()
                        ? std::in_range<Number>(value.template get<uint64_t>())
                        : value.is_number_integer() && std::in_range<Number>(value.template get<int64_t>());
  if (!fits) throw std::range_error(std::string(key) + " is not a whole number that fits");
  return value.template get<Number>();
}

// Returns `otherwise` if the object has no such member.
template <typename Number, typename Json>
Number whole_number(const Json& object, const char* key, Number otherwise) {
  return object.contains(key) ? whole_number<Number>(object, key) : otherwise;
}

}  // namespace tuft::control
