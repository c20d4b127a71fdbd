// Conversions between values and text, as Python makes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "chat/budget.h"
#include "chat/value.h"

namespace tuft::chat {

// Returns str(x). Fails for values that no template prints: namespaces, loops, functions, iterators, ranges, views.
Result<std::string> to_text(Budget& budget, const Value& value);

// Returns repr(x) of a float: the fewest digits that give the same number.
std::string float_text(double value);

// Reads decimal numbers, with white space around them and a sign; returns nothing for anything else.
std::optional<int64_t> parse_integer(std::string_view text);
std::optional<double> parse_float(std::string_view text);

}  // namespace tuft::chat
