#include "tokenizer/byte_level.h"

#include <set>

#include <gtest/gtest.h>

namespace tuft::tokenizer {
namespace {

TEST(ByteLevel, EveryByteThenOneCharacterAndBack) {
  std::set<char32_t> seen;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t character = byte_to_character(static_cast<uint8_t>(byte));
    EXPECT_TRUE(seen.insert(character).second);
    EXPECT_EQ(character_to_byte(character), static_cast<uint8_t>(byte));
  }
}

TEST(ByteLevel, KnownBytesThenTheirCharacters) {
  EXPECT_EQ(byte_to_character('A'), U'A');
  EXPECT_EQ(byte_to_utf8(' '), "\u0120");
  EXPECT_EQ(byte_to_utf8('\n'), "\u010A");
  EXPECT_EQ(byte_to_utf8(0x00), "\u0100");
  EXPECT_EQ(byte_to_utf8(0x7F), "\u0121");
  EXPECT_EQ(byte_to_utf8(0xAD), "\u0143");
  EXPECT_EQ(byte_to_utf8(0xE9), "\u00E9");
  EXPECT_EQ(byte_to_utf8('z'), "z");
}

TEST(ByteLevel, CharacterOutsideTheAlphabetThenNothing) {
  for (const char32_t character : {U' ', U'\n', U'\u00AD', U'\u0144', U'\u2581', U'\U0001F600'}) {
    EXPECT_FALSE(character_to_byte(character).has_value());
  }
}

}  // namespace
}  // namespace tuft::tokenizer
