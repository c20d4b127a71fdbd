#include "tokenizer/byte_level.h"

#include <array>

namespace tuft::tokenizer {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char16_t, 256> make_alphabet() {
  std::array<char16_t, 256> out{};
  char16_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte)
    out[byte] = stands_for_itself(byte) ? static_cast<char16_t>(byte) : next++;
  return out;
}

constexpr std::array<char16_t, 256> kAlphabet = make_alphabet();

}  // namespace

char32_t byte_to_character(uint8_t byte) {
  return kAlphabet[byte];
}

std::optional<uint8_t> character_to_byte(char32_t character) {
  if (character < 0x100) {
    if (!stands_for_itself(character)) return std::nullopt;
    return static_cast<uint8_t>(character);
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (kAlphabet[byte] == character) return static_cast<uint8_t>(byte);
  }
  return std::nullopt;
}

std::string byte_to_utf8(uint8_t byte) {
  const char16_t character = kAlphabet[byte];  // below U+0800: at most two bytes
  if (character < 0x80) return {static_cast<char>(character)};
  return {static_cast<char>(0xC0 | (character >> 6)), static_cast<char>(0x80 | (character & 0x3F))};
}

}  // namespace tuft::tokenizer
