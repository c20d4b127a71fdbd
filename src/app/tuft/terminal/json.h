// Reads the answers of the observe API. A field that is absent, null or of another type counts as missing, so that a
// newer or an older server can be shown.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace tuft::terminal {

using Json = nlohmann::json;

// Returns null if the field is missing. Works on any value.
const Json& field_of(const Json& value, std::string_view key);
// Returns a text as it is, a number or a boolean as JSON writes it, and "" for anything else.
std::string text_of(const Json& value, std::string_view key);
std::optional<double> number_of(const Json& value, std::string_view key);
bool flag_of(const Json& value, std::string_view key);
// Returns an empty list if the field is not a list.
const Json& list_of(const Json& value, std::string_view key);

// Writes JSON that is safe to show: everything outside of printable ASCII is escaped. Numbers have no exponent where
// that is exact, so that times can be read.
std::string safe_json(const Json& value);

}  // namespace tuft::terminal
