// Validity of UTF-8, as Unicode defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string_view>

namespace tuft {

// Bytes of the valid character at the start of `text`; 0 where there is none.
size_t utf8_length(std::string_view text);
bool is_utf8(std::string_view text);

}  // namespace tuft
