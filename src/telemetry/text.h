// Writing and cutting of text that several files of this module need. Internal to telemetry.
#pragma once

#include <array>
#include <charconv>
#include <string>
#include <string_view>

namespace tuft::telemetry::internal {

// Without blanks and line ends around it.
std::string_view trimmed(std::string_view text);

// Two lower-case digits a byte.
void append_hex(std::string& out, std::string_view bytes);

// The shortest form that reads back as the same number.
template <typename T>
void append_number(std::string& out, T value) {
  std::array<char, 32> text{};
  out.append(text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr);
}

// In double quotes, which it escapes, and backslashes. A control character becomes `control` and its two digits, so
// that a value can neither end a line nor forge another.
void append_quoted(std::string& out, std::string_view text, std::string_view control);

}  // namespace tuft::telemetry::internal
