// Checks UTF-8 as Unicode defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string_view>

namespace tuft {

// Returns the number of bytes of the character at the start of `text`, or 0 if it is not valid.
size_t utf8_length(std::string_view text);
bool is_utf8(std::string_view text);

}  // namespace tuft
