// Values as text, and numbers out of text, as Python does it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "chat/budget.h"
#include "chat/value.h"

namespace tuft::chat {

// str(x). Fails for what only prints as an address in memory.
Result<std::string> to_text(Budget& budget, const Value& value);

// repr(1e16): the shortest digits that give the same number.
std::string float_text(double value);

// int("12"), float("1.5"): with surrounding white space, signs and underscores; none where Python raises.
std::optional<int64_t> parse_integer(std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);
// int(1.5); none for what has no 64-bit integer.
std::optional<int64_t> truncate(double value);

}  // namespace tuft::chat
