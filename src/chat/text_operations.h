// Python's string methods, on text and plain numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "chat/budget.h"
#include "chat/value.h"

namespace tuft::chat {

// str.replace; a negative count replaces all.
Result<std::string> replace_text(Budget& budget, std::string_view text, std::string_view old, std::string_view with,
                                 int64_t count);

// str.split and str.rsplit; without a separator at white space, negative: no limit.
Result<Value> split_text(Budget& budget, std::string_view text, std::optional<std::string_view> separator,
                         int64_t limit, bool from_right);

// separator.join(parts)
Result<std::string> join_text(Budget& budget, std::string_view separator, const std::vector<std::string>& parts);

// At least `width` characters, `fill` being one of them.
Result<std::string> pad_text(Budget& budget, std::string_view text, int64_t width, std::string_view fill,
                             bool fill_left, bool fill_right);

}  // namespace tuft::chat
