#include "tokenizer/utf8.h"

#include <cstdint>

#include <utf8proc.h>

namespace tuft::tokenizer {

char32_t next_character(std::string_view text, size_t& at) {
  const auto lead = static_cast<uint8_t>(text[at++]);
  const int more = lead < 0x80 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  char32_t character = more == 0 ? lead : lead & (0x3F >> more);
  for (int i = 0; i < more && at < text.size(); ++i)
    character = character << 6 | (static_cast<uint8_t>(text[at++]) & 0x3F);
  return character;
}

size_t previous_character(std::string_view text, size_t end) {
  size_t at = end;
  while (at > 0 && (static_cast<uint8_t>(text[--at]) & 0xC0) == 0x80) {
  }
  return at;
}

bool is_space(char32_t character) {
  if (character >= 0x9 && character <= 0xD) return true;
  if (character == 0x85) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(character))) {
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return true;
    default:
      return false;
  }
}

bool is_word(char32_t character) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(character))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

}  // namespace tuft::tokenizer
