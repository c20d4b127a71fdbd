#include "chat/unicode.h"

#include <algorithm>
#include <cstring>

#include <utf8proc.h>

namespace tuft::chat {
namespace {

int category(char32_t value) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(value));
}

bool is_letter(char32_t c) {
  const int kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT;
}

void append_upper(std::string& out, char32_t c) {
  append_code_point(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void append_lower(std::string& out, char32_t c) {
  append_code_point(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
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

namespace {

// Calls `append(out, c, at)` for each character.
template <typename Append>
std::string mapped(std::string_view text, const Append& append) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto [c, bytes] = code_point_at(text, at);
    append(out, c, at);
    at += bytes;
  }
  return out;
}

}  // namespace

std::string to_upper(std::string_view text) {
  return mapped(text, [](std::string& out, char32_t c, size_t) { append_upper(out, c); });
}

std::string to_lower(std::string_view text) {
  return mapped(text, [](std::string& out, char32_t c, size_t) { append_lower(out, c); });
}

std::string capitalize(std::string_view text) {
  return mapped(text,
                [](std::string& out, char32_t c, size_t at) { at == 0 ? append_upper(out, c) : append_lower(out, c); });
}

std::string title_case(std::string_view text) {
  bool inside = false;
  return mapped(text, [&](std::string& out, char32_t c, size_t) {
    inside ? append_lower(out, c) : append_upper(out, c);
    inside = is_letter(c);
  });
}

std::string title_filter(std::string_view text) {
  static constexpr std::string_view kSeparators = "-({[<";
  bool inside = false;
  return mapped(text, [&](std::string& out, char32_t c, size_t) {
    inside ? append_lower(out, c) : append_upper(out, c);
    inside = !is_space(c) && (c >= 0x80 || kSeparators.find(static_cast<char>(c)) == std::string_view::npos);
  });
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    const auto [c, bytes] = code_point_at(text, at);
    if (is_line_end(c)) {
      lines.push_back(text.substr(start, at - start));
      const bool is_pair = c == '\r' && text.substr(at + 1).starts_with('\n');
      start = at + (is_pair ? 2 : bytes);
      at = start;
    } else {
      at += bytes;
    }
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

}  // namespace tuft::chat
