// The byte alphabet of GPT-2's byte-level BPE: every byte stands as one printable character, so that token strings are
// text. Printable Latin-1 bytes stand for themselves, the other 68 for U+0100 on, in order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tuft::tokenizer {

char32_t byte_to_character(uint8_t byte);
std::optional<uint8_t> character_to_byte(char32_t character);

// UTF-8 of one character of the alphabet.
std::string byte_to_utf8(uint8_t byte);

}  // namespace tuft::tokenizer
