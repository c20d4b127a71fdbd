// Text helpers.
#pragma once

#include <array>
#include <charconv>
#include <string>
#include <string_view>

namespace tuft {

// Returns `text` without leading and trailing whitespace.
std::string_view trimmed(std::string_view text);

// Appends two lower-case hexadecimal digits per byte.
void append_hex(std::string& out, std::string_view bytes);

// Appends the shortest text that parses to the same number.
template <typename T>
void append_number(std::string& out, T value) {
  std::array<char, 32> text{};
  out.append(text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr);
}

// Appends `text` in double quotes, with quotes and backslashes escaped. A control character becomes `control` followed
// by two hexadecimal digits, so that a value cannot end a line or forge another.
void append_quoted(std::string& out, std::string_view text, std::string_view control);

}  // namespace tuft
