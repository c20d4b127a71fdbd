// Walks valid UTF-8 by characters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tuft::tokenizer {

// Returns the character at `at` and moves `at` past it.
char32_t next_character(std::string_view text, size_t& at);
// Returns the start of the character that ends at `end`.
size_t previous_character(std::string_view text, size_t end);

// Return whether the character has Unicode's White_Space property, or matches \w (letters, marks, decimal digits,
// connectors).
bool is_space(char32_t character);
bool is_word(char32_t character);

}  // namespace tuft::tokenizer
