#include "chat/string_literal.h"

#include <cstdint>
#include <cstdio>
#include <utility>

#include "chat/lexer.h"
#include "chat/unicode.h"

namespace tuft::chat {
namespace {

class Unescaper {
 public:
  Unescaper(std::string_view text, int line) : text_(text), line_(line) {}

  Result<std::string> run() {
    while (at_ < text_.size()) {
      if (text_[at_] != '\\') {
        out_ += text_[at_++];
        continue;
      }
      ++at_;
      if (at_ == text_.size()) return syntax_error(line_, "a string ends with a single backslash");
      TUFT_TRY(escape(text_[at_++]));
    }
    return std::move(out_);
  }

 private:
  Status escape(char c) {
    static constexpr std::string_view kLetters = "\\'\"abfnrtv";
    static constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    if (c == '\n') return {};  // a continued line
    if (const size_t found = kLetters.find(c); found != std::string_view::npos) {
      out_ += kMeanings[found];
      return {};
    }
    if (c >= '0' && c <= '7') return octal(c);
    if (c == 'x') return hexadecimal(2);
    if (c == 'u') return hexadecimal(4);
    if (c == 'U') return hexadecimal(8);
    if (c == 'N') return not_supported(line_, "the escape \\N{...}");
    out_ += '\\';
    if ((c & 0x80) != 0) {
      --at_;
      return spell_out();
    }
    out_ += c;
    return {};
  }

  // A quirk of Jinja: a backslash before a character beyond ASCII leaves the character's number behind.
  Status spell_out() {
    const auto [value, bytes] = code_point_at(text_, at_);
    char spelled[16];
    std::snprintf(spelled, sizeof spelled,
                  value < 0x100     ? "x%02x"
                  : value < 0x10000 ? "u%04x"
                                    : "U%08x",
                  static_cast<unsigned>(value));
    out_ += spelled;
    at_ += bytes;
    return {};
  }

  Status octal(char first) {
    char32_t value = static_cast<char32_t>(first - '0');
    for (int i = 0; i < 2 && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '7'; ++i) {
      value = value * 8 + static_cast<char32_t>(text_[at_++] - '0');
    }
    append_code_point(out_, value);
    return {};
  }

  Status hexadecimal(size_t digits) {
    char32_t value = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      const char c = at_ < text_.size() ? text_[at_] : '\0';
      const bool is_letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'f';
      if (!is_letter && (c < '0' || c > '9')) return syntax_error(line_, "a truncated escape in a string");
      value = value * 16 + static_cast<char32_t>(is_letter ? (c | 0x20) - 'a' + 10 : c - '0');
    }
    if (value > 0x10FFFF) return syntax_error(line_, "an escape beyond the last character of Unicode");
    if (value >= 0xD800 && value <= 0xDFFF) return not_supported(line_, "a surrogate in a string");
    append_code_point(out_, value);
    return {};
  }

  std::string_view text_;
  int line_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> unescape(std::string_view inside, int line) {
  return Unescaper(inside, line).run();
}

}  // namespace tuft::chat
