// Times as text in the form of RFC 3339.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace tuft {

// Returns, for instance, "2026-07-13T00:00:00.000000Z". Requires `wall` >= 0.
std::string time_text(Nanos wall);
// Parses a time with an offset ("Z", "+02:00"). A space is accepted for '+', because a '+' in a query decodes to one.
// Returns nothing for other text and for years outside 1970 to 2255.
std::optional<Nanos> parse_time_text(std::string_view text);
// Parses a date such as "2026-07-13" and returns midnight UTC of that day.
std::optional<Nanos> parse_day(std::string_view text);

}  // namespace tuft
