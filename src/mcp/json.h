// JSON of messages and results.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/clock.h"

namespace tuft::mcp {

using Input = nlohmann::json;         // what a client sends; finding a name takes little time, however many there are
using Json = nlohmann::ordered_json;  // what is sent; members keep their order

// Invalid UTF-8 becomes U+FFFD.
std::string to_text(const Json& value);

// "2026-11-25T04:12:07.123456Z"; null for a time that is not known (0).
Json time_json(Nanos wall);
Json millis_json(Nanos duration);
// A number that is not known (NaN) is null.
Json number_json(double value);
// An empty text is null.
Json text_json(std::string_view text);
// The same, but longer texts are cut and end with "...".
Json short_text_json(std::string_view text, size_t bytes_max);

}  // namespace tuft::mcp
