// Text as Python's str sees it: code points, its white space, its case mappings. Every text here is valid UTF-8.
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

// The character at `at`, which is inside the text and on a boundary.
CodePoint code_point_at(std::string_view text, size_t at);
void append_code_point(std::string& out, char32_t value);
size_t count_code_points(std::string_view text);
// The byte where code point number `index` starts; the text's size beyond its end.
size_t byte_offset(std::string_view text, size_t index);

bool is_space(char32_t value);  // str.isspace
bool is_printable(char32_t value);
bool is_cased(char32_t value);

enum class Side { kLeft, kRight, kBoth };
std::string_view strip(std::string_view text, Side side);
// Without the characters of `set`.
std::string_view strip(std::string_view text, std::string_view set, Side side);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title_case(std::string_view text);  // str.title

bool is_upper(std::string_view text);
bool is_lower(std::string_view text);
enum class CharacterClass { kAlpha, kDigit, kAlphanumeric, kSpace };
// At least one character, and all of the class.
bool all_of_class(std::string_view text, CharacterClass wanted);

// str.splitlines.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

// First occurrence of a non-empty needle at or after `from`, or npos; time linear in the text.
size_t find_text(std::string_view text, std::string_view needle, size_t from);
// The start of the last occurrence that ends at or before `end`.
size_t find_text_last(std::string_view text, std::string_view needle, size_t end);

}  // namespace tuft::chat
