// Times as text, of RFC 3339.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace tuft {

// "2026-07-13T00:00:00.000000Z"; `wall` >= 0.
std::string time_text(Nanos wall);
// With an offset ("Z", "+02:00"; a blank for '+', which is what a '+' in a query means). Years 1970 to 2255.
std::optional<Nanos> parse_time_text(std::string_view text);
// "2026-07-13", at midnight UTC.
std::optional<Nanos> parse_day(std::string_view text);

}  // namespace tuft
