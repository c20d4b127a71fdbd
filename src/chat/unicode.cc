#include "chat/unicode.h"

#include <algorithm>
#include <cstring>

#include <utf8proc.h>

#include "chat/case_table.h"

namespace tuft::chat {
namespace {

constexpr char32_t kCapitalSigma = 0x3A3;
constexpr char32_t kFinalSigma = 0x3C2;
constexpr char32_t kCapitalDottedI = 0x130;

int category(char32_t value) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(value));
}

// Unicode's Other_Lowercase and Other_Uppercase: cased, though no letters by their category.
bool is_other_cased(char32_t c) {
  static constexpr struct {
    char32_t first, last;
  } kRanges[] = {{0xAA, 0xAA},     {0xBA, 0xBA},     {0x2B0, 0x2B8},   {0x2C0, 0x2C1},   {0x2E0, 0x2E4},
                 {0x345, 0x345},   {0x37A, 0x37A},   {0x1D2C, 0x1D6A}, {0x1D78, 0x1D78}, {0x1D9B, 0x1DBF},
                 {0x2071, 0x2071}, {0x207F, 0x207F}, {0x2090, 0x209C}, {0x2160, 0x217F}, {0x24B6, 0x24E9}};
  for (const auto& range : kRanges) {
    if (c >= range.first && c <= range.last) return true;
  }
  return false;
}

bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x387 || c == 0x2018 || c == 0x2019 ||
             c == 0x2024 || c == 0x2027;
  }
}

// A capital sigma at the end of a word becomes the final form.
bool is_final_sigma(std::string_view text, size_t at) {
  size_t before = at;
  bool cased_before = false;
  while (before > 0 && !cased_before) {
    do --before;
    while ((text[before] & 0xC0) == 0x80);
    const char32_t c = code_point_at(text, before).value;
    if (is_case_ignorable(c)) continue;
    if (!is_cased(c)) return false;
    cased_before = true;
  }
  if (!cased_before) return false;
  for (size_t after = at + 2; after < text.size();) {
    const auto [c, bytes] = code_point_at(text, after);
    if (!is_case_ignorable(c)) return !is_cased(c);
    after += bytes;
  }
  return true;
}

void append_lower(std::string& out, std::string_view text, size_t at, char32_t c) {
  if (c == kCapitalDottedI) {
    out += "i\u0307";
  } else if (c == kCapitalSigma && is_final_sigma(text, at)) {
    append_code_point(out, kFinalSigma);
  } else {
    append_code_point(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_upper(std::string& out, char32_t c) {
  if (const SpecialCase* special = find_special_case(c)) {
    for (const char32_t mapped : special->upper) append_code_point(out, mapped);
  } else {
    append_code_point(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_title(std::string& out, char32_t c) {
  if (const SpecialCase* special = find_special_case(c)) {
    for (const char32_t mapped : special->title) append_code_point(out, mapped);
  } else {
    append_code_point(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

bool is_upper_or_title(char32_t c) {
  const int kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LT || (c >= 0x2160 && c <= 0x216F) ||
         (c >= 0x24B6 && c <= 0x24CF);
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

CodePoint code_point_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const char32_t first = byte(at);
  const size_t left = text.size() - at;
  if (first < 0x80 || left < 2) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(at + 1) & 0x3F), 2};
  if (left < 3) return {0xFFFD, 1};
  if (first < 0xF0) return {(first & 0x0F) << 12 | (byte(at + 1) & 0x3F) << 6 | (byte(at + 2) & 0x3F), 3};
  if (left < 4) return {0xFFFD, 1};
  return {(first & 0x07) << 18 | (byte(at + 1) & 0x3F) << 12 | (byte(at + 2) & 0x3F) << 6 | (byte(at + 3) & 0x3F), 4};
}

void append_code_point(std::string& out, char32_t value) {
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(value), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (c & 0xC0) != 0x80;
  return count;
}

size_t byte_offset(std::string_view text, size_t index) {
  for (size_t at = 0; at < text.size(); ++at) {
    if ((text[at] & 0xC0) != 0x80 && index-- == 0) return at;
  }
  return text.size();
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_cased(char32_t c) {
  const int kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT ||
         is_other_cased(c);
}

namespace {

template <typename InSet>
std::string_view strip_if(std::string_view text, Side side, const InSet& in_set) {
  if (side != Side::kRight) {
    while (!text.empty()) {
      const auto [c, bytes] = code_point_at(text, 0);
      if (!in_set(c)) break;
      text.remove_prefix(bytes);
    }
  }
  if (side != Side::kLeft) {
    while (!text.empty()) {
      size_t at = text.size() - 1;
      while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
      if (!in_set(code_point_at(text, at).value)) break;
      text = text.substr(0, at);
    }
  }
  return text;
}

}  // namespace

std::string_view strip(std::string_view text, Side side) {
  return strip_if(text, side, is_space);
}

std::string_view strip(std::string_view text, std::string_view set, Side side) {
  std::u32string wanted;
  for (size_t at = 0; at < set.size();) {
    const auto [c, bytes] = code_point_at(set, at);
    wanted += c;
    at += bytes;
  }
  std::ranges::sort(wanted);
  return strip_if(text, side, [&](char32_t c) { return std::ranges::binary_search(wanted, c); });
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto [c, bytes] = code_point_at(text, at);
    append_upper(out, c);
    at += bytes;
  }
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto [c, bytes] = code_point_at(text, at);
    append_lower(out, text, at, c);
    at += bytes;
  }
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto [c, bytes] = code_point_at(text, at);
    if (at == 0) {
      append_title(out, c);
    } else {
      append_lower(out, text, at, c);
    }
    at += bytes;
  }
  return out;
}

std::string title_case(std::string_view text) {
  std::string out;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const auto [c, bytes] = code_point_at(text, at);
    if (inside) {
      append_lower(out, text, at, c);
    } else {
      append_title(out, c);
    }
    inside = is_cased(c);
    at += bytes;
  }
  return out;
}

bool is_upper(std::string_view text) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const auto [c, bytes] = code_point_at(text, at);
    if (is_cased(c)) {
      if (!is_upper_or_title(c) || category(c) == UTF8PROC_CATEGORY_LT) return false;
      any = true;
    }
    at += bytes;
  }
  return any;
}

bool is_lower(std::string_view text) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const auto [c, bytes] = code_point_at(text, at);
    if (is_cased(c)) {
      if (is_upper_or_title(c)) return false;
      any = true;
    }
    at += bytes;
  }
  return any;
}

namespace {

bool is_of_class(char32_t c, CharacterClass wanted) {
  const int kind = category(c);
  const bool letter = kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
  const bool digit = kind == UTF8PROC_CATEGORY_ND || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
                     (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089);
  switch (wanted) {
    case CharacterClass::kAlpha:
      return letter;
    case CharacterClass::kDigit:
      return digit;
    case CharacterClass::kAlphanumeric:
      return letter || (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO);
    case CharacterClass::kSpace:
      return is_space(c);
  }
  return false;
}

}  // namespace

bool all_of_class(std::string_view text, CharacterClass wanted) {
  for (size_t at = 0; at < text.size();) {
    const auto [c, bytes] = code_point_at(text, at);
    if (!is_of_class(c, wanted)) return false;
    at += bytes;
  }
  return !text.empty();
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    auto [c, bytes] = code_point_at(text, at);
    if (!is_line_end(c)) {
      at += bytes;
      continue;
    }
    if (c == '\r' && at + 1 < text.size() && text[at + 1] == '\n') bytes = 2;
    lines.push_back(text.substr(start, at - start + (keep_ends ? bytes : 0)));
    at += bytes;
    start = at;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t find_text_last(std::string_view text, std::string_view needle, size_t end) {
  // On the reversed bytes, so that it is linear too.
  const std::string backwards(text.substr(0, end).rbegin(), text.substr(0, end).rend());
  const std::string wanted(needle.rbegin(), needle.rend());
  const size_t found = find_text(backwards, wanted, 0);
  return found == std::string_view::npos ? found : end - found - needle.size();
}

}  // namespace tuft::chat
