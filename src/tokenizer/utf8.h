// Valid UTF-8, character by character.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tuft::tokenizer {

// The character at `at`; moves `at` behind it.
char32_t next_character(std::string_view text, size_t& at);
// The start of the character that ends before `end`.
size_t previous_character(std::string_view text, size_t end);

// White_Space, and what \w matches (letters, marks, decimal digits, connectors), of Unicode.
bool is_space(char32_t character);
bool is_word(char32_t character);

}  // namespace tuft::tokenizer
