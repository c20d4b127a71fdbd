// Operations on text in units of code points, as Python's str has them. Every text passed in must be valid UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tuft::chat {

struct CodePoint {
  char32_t value;
  size_t bytes;
};

// Returns the character at `at`. Requires that a character starts there.
CodePoint code_point_at(std::string_view text, size_t at);
void append_code_point(std::string& out, char32_t value);
size_t count_code_points(std::string_view text);
// Returns the byte offset of the code point number `index`, or the text's size if there are fewer.
size_t byte_offset(std::string_view text, size_t index);

bool is_space(char32_t value);      // as str.isspace
bool is_printable(char32_t value);  // as str.isprintable

// Returns the text without the white space, or without the characters of `set`, at the given ends.
enum class Side { kLeft, kRight, kBoth };
std::string_view strip(std::string_view text, Side side);
std::string_view strip(std::string_view text, std::string_view set, Side side);

// Case mappings. Each maps one character to one character, by utf8proc's tables; mappings of Python that depend on the
// context or change the length ("ß" to "SS") are not made.
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title_case(std::string_view text);    // str.title: a word starts after a character that is not a letter
std::string title_filter(std::string_view text);  // the filter title: a word starts after white space and -({[<

// Returns the lines without their ends, as str.splitlines does.
std::vector<std::string_view> split_lines(std::string_view text);

// Returns the first occurrence of `needle` at or after `from`, or npos. Linear in the size of the text.
size_t find_text(std::string_view text, std::string_view needle, size_t from);

}  // namespace tuft::chat
