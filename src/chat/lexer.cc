#include "chat/lexer.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "chat/text.h"
#include "chat/unicode.h"

namespace tuft::chat {
namespace {

constexpr size_t kNowhere = std::string_view::npos;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// Replaces every line end by \n and removes the last one, as Jinja does.
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) TUFT_TRY(next_part());
    add(TokenKind::kEnd, {});
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return source_.substr(at_); }
  bool looking_at(std::string_view text) const { return rest().starts_with(text); }

  void advance(size_t bytes) {
    line_ += static_cast<int>(std::ranges::count(source_.substr(at_, bytes), '\n'));
    if (bytes > 0) at_line_start_ = source_[at_ + bytes - 1] == '\n';
    at_ += bytes;
  }

  void skip_space() { advance(rest().size() - strip(rest(), Side::kLeft).size()); }

  Token& add(TokenKind kind, std::string text) {
    Token& token = tokens_.emplace_back();
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    return token;
  }

  // Reads the text before the next tag, and the tag.
  Status next_part() {
    const size_t tag = find_tag(at_);
    if (tag == kNowhere) {
      add(TokenKind::kData, std::string(rest()));
      advance(rest().size());
      return {};
    }
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const bool is_variable = source_[tag + 1] == '{';
    add_data(source_.substr(at_, tag - at_), sign, !is_variable);
    advance(tag - at_);
    const char kind = source_[at_ + 1];
    const int line = line_;
    advance(sign == '-' || sign == '+' ? 3 : 2);
    if (kind == '#') return comment(line);
    // The content of a raw block has no tokens, so the lexer refuses the tag, and not the parser.
    if (kind == '%' && strip(rest(), Side::kLeft).starts_with("raw")) return not_supported(line, "the tag 'raw'");
    add(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, {});
    return tag_tokens(kind == '{');
  }

  size_t find_tag(size_t from) const {
    for (size_t brace = source_.find('{', from); brace != kNowhere; brace = source_.find('{', brace + 1)) {
      if (brace + 1 == source_.size()) return kNowhere;
      const char next = source_[brace + 1];
      if (next == '{' || next == '%' || next == '#') return brace;
    }
    return kNowhere;
  }

  // Adds the text before a tag. `sign` is the character after the opening of the tag.
  void add_data(std::string_view text, char sign, bool lstrip) {
    if (sign == '-') {
      text = strip(text, Side::kRight);
    } else if (sign != '+' && lstrip) {
      const size_t line_end = text.rfind('\n');
      const size_t line = line_end == kNowhere ? 0 : line_end + 1;
      const bool starts_line = line > 0 || at_line_start_;
      if (starts_line && strip(text.substr(line), Side::kLeft).empty()) text = text.substr(0, line);
    }
    if (!text.empty()) add(TokenKind::kData, std::string(text));
  }

  // Returns the bytes that the end of a tag takes at `at`, with the white space that it removes; 0 if the tag does not
  // end there. The end of a block or comment removes a newline and takes a plus sign.
  size_t closing(std::string_view close, size_t at, bool is_block) const {
    const std::string_view text = source_.substr(at);
    if (text.starts_with('-') && text.substr(1).starts_with(close)) {
      const std::string_view after = text.substr(1 + close.size());
      return 1 + close.size() + after.size() - strip(after, Side::kLeft).size();
    }
    if (is_block && text.starts_with('+') && text.substr(1).starts_with(close)) return 1 + close.size();
    if (!text.starts_with(close)) return 0;
    return close.size() + (is_block && text.substr(close.size()).starts_with('\n') ? 1 : 0);
  }

  Status comment(int line) {
    const size_t end = source_.find("#}", at_);
    if (end == kNowhere) return syntax_error(line, "missing end of comment tag");
    const bool is_signed = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+');
    const size_t close = is_signed ? end - 1 : end;
    advance(close - at_ + closing("#}", close, true));
    return {};
  }

  Status tag_tokens(bool is_variable) {
    open_.clear();
    while (at_ < source_.size()) {
      if (open_.empty()) {
        const size_t bytes = closing(is_variable ? "}}" : "%}", at_, !is_variable);
        if (bytes > 0) {
          add(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, {});
          advance(bytes);
          return {};
        }
      }
      TUFT_TRY(token());
    }
    return {};
  }

  Status token() {
    const char c = source_[at_];
    if (is_space(code_point_at(source_, at_).value)) {
      skip_space();
      return {};
    }
    if (is_digit(c)) return number();
    if (is_name_start(c)) return name();
    if (c == '\'' || c == '"') return string();
    return operation();
  }

  Status name() {
    size_t bytes = 1;
    while (at_ + bytes < source_.size() && (is_name_start(source_[at_ + bytes]) || is_digit(source_[at_ + bytes]))) {
      ++bytes;
    }
    if (at_ + bytes < source_.size() && (source_[at_ + bytes] & 0x80) != 0) {
      return not_supported(line_, "a name with letters beyond ASCII");
    }
    add(TokenKind::kName, std::string(rest().substr(0, bytes)));
    advance(bytes);
    return {};
  }

  Status string() {
    const char quote = source_[at_];
    std::string text;
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) {
      if (source_[end] != '\\') {
        text += source_[end++];
        continue;
      }
      TUFT_ASSIGN(end, escape(end + 1, text));
    }
    if (end >= source_.size()) return syntax_error(line_, "a string is not closed");
    add(TokenKind::kString, std::move(text));
    advance(end + 1 - at_);
    return {};
  }

  // Reads the escape whose letter is at `at` and returns the position after it.
  Result<size_t> escape(size_t at, std::string& text) const {
    static constexpr std::string_view kLetters = "\\'\"abfnrtv";
    static constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    if (at >= source_.size()) return at;
    const char c = source_[at];
    if (const size_t found = kLetters.find(c); found != kNowhere) {
      text += kMeanings[found];
      return at + 1;
    }
    if (c == '\n') return at + 1;  // a continued line
    if (c == 'x') return hexadecimal(at + 1, 2, text);
    if (c == 'u') return hexadecimal(at + 1, 4, text);
    if (c == 'U') return hexadecimal(at + 1, 8, text);
    if (c == 'N' || is_digit(c) || (c & 0x80) != 0) return not_supported(line_, "this escape in a string");
    text += '\\';  // Python keeps the backslash of an unknown escape
    text += c;
    return at + 1;
  }

  Result<size_t> hexadecimal(size_t at, size_t digits, std::string& text) const {
    const std::string_view shown = source_.substr(at, digits);
    uint32_t value = 0;
    const auto read = std::from_chars(shown.data(), shown.data() + shown.size(), value, 16);
    if (shown.size() < digits || read.ptr != shown.data() + digits) {
      return syntax_error(line_, "a truncated escape in a string");
    }
    if (value > 0x10FFFF) return syntax_error(line_, "an escape beyond the last character of Unicode");
    if (value >= 0xD800 && value <= 0xDFFF) return not_supported(line_, "a surrogate in a string");
    append_code_point(text, value);
    return at + digits;
  }

  // Decimal integers, and floats with digits on both sides of the point. In `a.0.1` there is no float.
  Status number() {
    const auto digits = [&](size_t at) {
      while (at < source_.size() && is_digit(source_[at])) ++at;
      return at;
    };
    size_t end = digits(at_);
    const bool is_float =
        source_[at_ - 1] != '.' && end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1]);
    if (is_float) end = digits(end + 1);
    const std::string_view text = source_.substr(at_, end - at_);
    if (end < source_.size() && is_name_start(source_[end])) {
      return not_supported(line_, "a number that is not decimal, or has an exponent or underscores");
    }
    if (is_float) {
      add(TokenKind::kFloat, std::string(text)).number = parse_float(text).value_or(0);
    } else {
      const auto value = parse_integer(text);
      if (!value) return not_supported(line_, "an integer beyond 64 bits");
      add(TokenKind::kInteger, std::string(text)).integer = *value;
    }
    advance(text.size());
    return {};
  }

  Status operation() {
    static constexpr std::string_view kLong[] = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,;";
    size_t bytes = 0;
    for (const std::string_view candidate : kLong) {
      if (looking_at(candidate)) bytes = 2;
    }
    if (bytes == 0 && kShort.find(source_[at_]) != kNowhere) bytes = 1;
    if (bytes == 0) return syntax_error(line_, "unexpected character '" + character() + "'");
    if (bytes == 1) TUFT_TRY(balance(source_[at_]));
    add(TokenKind::kOperator, std::string(rest().substr(0, bytes)));
    advance(bytes);
    return {};
  }

  std::string character() const { return std::string(rest().substr(0, code_point_at(source_, at_).bytes)); }

  Status balance(char c) {
    static constexpr std::string_view kOpening = "([{";
    static constexpr std::string_view kClosing = ")]}";
    if (kOpening.find(c) != kNowhere) {
      open_ += kClosing[kOpening.find(c)];
    } else if (kClosing.find(c) != kNowhere) {
      if (open_.empty()) return syntax_error(line_, std::string("unexpected '") + c + "'");
      if (open_.back() != c) {
        return syntax_error(line_, std::string("unexpected '") + c + "', expected '" + open_.back() + "'");
      }
      open_.pop_back();
    }
    return {};
  }

  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::string open_;  // the closing brackets that are expected
  std::vector<Token> tokens_;
};

}  // namespace

Error syntax_error(int line, const std::string& what) {
  return invalid_argument("chat template, line " + std::to_string(line) + ": " + what, "template_syntax");
}

Error not_supported(int line, const std::string& what) {
  return {ErrorCode::kUnimplemented,
          "chat template, line " + std::to_string(line) + ": " + what +
              " is not supported; change the template to work without it",
          "template_unsupported"};
}

Result<std::vector<Token>> tokenize(std::string_view source) {
  const std::string text = normalize(source);
  return Lexer(text).run();
}

}  // namespace tuft::chat
