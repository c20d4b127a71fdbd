// The byte alphabet of byte-level BPE (GPT-2). It writes every byte as one printable character, so that tokens are
// text. Printable Latin-1 bytes are written as themselves; the other 68 are written as U+0100 and following, in order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tuft::tokenizer {

char32_t byte_to_character(uint8_t byte);
std::optional<uint8_t> character_to_byte(char32_t character);

// Returns the character of the byte in UTF-8.
std::string byte_to_utf8(uint8_t byte);

}  // namespace tuft::tokenizer
