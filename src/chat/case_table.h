// Characters whose upper or title case is several characters (Unicode's SpecialCasing.txt, unconditional lines).
#pragma once

#include <string_view>

namespace tuft::chat {

struct SpecialCase {
  char32_t character;
  std::u32string_view upper;
  std::u32string_view title;
};

// Null where simple mappings say it all.
const SpecialCase* find_special_case(char32_t character);

}  // namespace tuft::chat
