// Texts of users' programs in JSON.
#pragma once

#include <string>
#include <string_view>

#include "api/json/json_writer.h"
#include "base/clock.h"

namespace tuft::api {

// Returns `text` with '?' for each byte above 0x7f if it is not UTF-8.
std::string utf8_text(std::string_view text);
// Returns true for a JSON value.
bool is_json(std::string_view text);

void write_text(JsonWriter& json, std::string_view key, std::string_view value);
// An empty text is null.
void write_or_null(JsonWriter& json, std::string_view key, std::string_view value);
// A time of 0 is null.
void write_time(JsonWriter& json, std::string_view key, Nanos time);

}  // namespace tuft::api
