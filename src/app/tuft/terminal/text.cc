#include "app/tuft/terminal/text.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <utility>

#include "base/utf8.h"

namespace tuft::terminal {
namespace {

struct Character {
  char32_t code = 0;
  size_t bytes = 0;  // 0: not valid UTF-8
};

// Requires that `text` is not empty.
Character first_character(std::string_view text) {
  const size_t bytes = utf8_length(text);
  if (bytes <= 1) return {static_cast<unsigned char>(text[0]), bytes};
  char32_t code = static_cast<unsigned char>(text[0]) & (0xFFu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) code = (code << 6) | (static_cast<unsigned char>(text[i]) & 0x3Fu);
  return {code, bytes};
}

using Ranges = std::span<const std::pair<char32_t, char32_t>>;

bool is_in(char32_t code, Ranges ranges) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [code](const auto& range) { return code >= range.first && code <= range.second; });
}

// Characters without a picture of their own that change how others are shown, and line separators.
bool is_hidden(char32_t code) {
  static constexpr std::pair<char32_t, char32_t> kHidden[] = {
      {0x0, 0x1F},      {0x7F, 0x9F},     {0xAD, 0xAD},     {0x61C, 0x61C},      {0x115F, 0x1160}, {0x180E, 0x180E},
      {0x200B, 0x200F}, {0x2028, 0x202E}, {0x2060, 0x206F}, {0x3164, 0x3164},    {0xFE00, 0xFE0F}, {0xFEFF, 0xFEFF},
      {0xFFA0, 0xFFA0}, {0xFFF0, 0xFFFB}, {0xE000, 0xF8FF}, {0xE0000, 0x10FFFF},
  };
  return is_in(code, kHidden);
}

size_t columns_of_character(char32_t code) {
  static constexpr std::pair<char32_t, char32_t> kCombining[] = {
      {0x300, 0x36F},   {0x483, 0x489},   {0x591, 0x5BD},   {0x64B, 0x65F},
      {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x20D0, 0x20FF}, {0xFE20, 0xFE2F},
  };
  static constexpr std::pair<char32_t, char32_t> kWide[] = {
      {0x1100, 0x115E},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},   {0xA960, 0xA97F}, {0xAC00, 0xD7A3},
      {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF01, 0xFF60},   {0xFFE0, 0xFFE6}, {0x1F300, 0x1F64F},
      {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD},
  };
  if (code < 0x300) return 1;
  if (is_in(code, kCombining)) return 0;
  return is_in(code, kWide) ? 2 : 1;
}

void append_escape(std::string& out, const Character& character) {
  std::array<char, 16> text{};
  if (character.bytes == 1 && character.code == '\n') {
    out += "\\n";
    return;
  }
  if (character.bytes == 1 && character.code == '\t') {
    out += "\\t";
    return;
  }
  const char* const form = character.code < 0x100 ? "\\x%02x" : "\\u%04x";
  std::snprintf(text.data(), text.size(), form, static_cast<unsigned>(character.code));
  out += text.data();
}

// Calls `take(bytes, columns)` for each character of visible text until it returns false.
template <typename Take>
void each_character(std::string_view shown, const Take& take) {
  while (!shown.empty()) {
    const Character next = first_character(shown);
    const std::string_view bytes = shown.substr(0, std::max<size_t>(next.bytes, 1));
    if (!take(bytes, columns_of_character(next.code))) return;
    shown.remove_prefix(bytes.size());
  }
}

size_t shown_columns(std::string_view shown) {
  size_t total = 0;
  each_character(shown, [&total](std::string_view, size_t columns) {
    total += columns;
    return true;
  });
  return total;
}

std::string cut_shown(std::string shown, size_t columns) {
  if (shown_columns(shown) <= columns) return shown;
  if (columns == 0) return {};
  std::string out;
  size_t used = 0;
  each_character(shown, [&](std::string_view bytes, size_t wide) {
    if (used + wide > columns - 1) return false;
    out += bytes;
    used += wide;
    return true;
  });
  out += '~';
  return out;
}

std::string_view code_of(Style style) {
  switch (style) {
    case Style::kPlain:
      return "";
    case Style::kBold:
      return "\x1b[1m";
    case Style::kDim:
      return "\x1b[2m";
    case Style::kRed:
      return "\x1b[31m";
    case Style::kYellow:
      return "\x1b[33m";
    case Style::kGreen:
      return "\x1b[32m";
    case Style::kCyan:
      return "\x1b[36m";
    case Style::kReverse:
      return "\x1b[7m";
  }
  return "";
}

}  // namespace

std::string visible(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character next = first_character(text);
    const size_t bytes = std::max<size_t>(next.bytes, 1);
    if (next.bytes == 0 || is_hidden(next.code)) {
      append_escape(out, next);
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return out;
}

size_t columns_of(std::string_view text) {
  return shown_columns(visible(text));
}

std::string cut(std::string_view text, size_t columns) {
  return cut_shown(visible(text), columns);
}

std::string left_aligned(std::string_view text, size_t columns) {
  std::string out = cut(text, columns);
  out.append(columns - std::min(columns, shown_columns(out)), ' ');
  return out;
}

std::string right_aligned(std::string_view text, size_t columns) {
  std::string out = cut(text, columns);
  return std::string(columns - std::min(columns, shown_columns(out)), ' ') + out;
}

Line& Line::add(std::string_view text, Style style) {
  pieces_.push_back({visible(text), style});
  return *this;
}

Line& Line::to(size_t column) {
  const size_t now = columns();
  return add(std::string(now < column ? column - now : 1, ' '));
}

size_t Line::columns() const {
  size_t total = 0;
  for (const Piece& piece : pieces_) total += shown_columns(piece.text);
  return total;
}

std::string Line::plain(size_t columns) const {
  std::string out;
  for (const Piece& piece : pieces_) out += piece.text;
  if (columns > 0) out = cut_shown(std::move(out), columns);
  out.erase(out.find_last_not_of(' ') + 1);
  return out;
}

std::string Line::styled(size_t columns) const {
  std::string out;
  size_t left = columns > 0 ? columns : SIZE_MAX;
  for (const Piece& piece : pieces_) {
    const std::string text = cut_shown(piece.text, left);
    if (text.empty()) continue;
    left -= std::min(left, shown_columns(text));
    const std::string_view code = code_of(piece.style);
    out += code;
    out += text;
    if (!code.empty()) out += "\x1b[0m";
  }
  return out;
}

std::string plain_text(const Lines& lines) {
  std::string out;
  for (const Line& line : lines) out += line.plain() + "\n";
  return out;
}

std::string styled_text(const Lines& lines) {
  std::string out;
  for (const Line& line : lines) out += line.styled() + "\n";
  return out;
}

}  // namespace tuft::terminal
