#include "chat/lexer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "chat/string_literal.h"
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

// As Jinja reads it: one kind of line end, and none after the last line.
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

  // The text up to the next tag, and the tag.
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
    if (kind == '%') {
      if (const size_t body = raw_body(); body != kNowhere) return raw(line, body);
    }
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

  // `sign` is what follows the tag's opening.
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

  // What closes a tag, with the white space that goes with it: the bytes, or 0 where none is.
  size_t closing(std::string_view close, size_t at, bool trims_newline, bool takes_plus) const {
    const std::string_view text = source_.substr(at);
    if (text.starts_with('-') && text.substr(1).starts_with(close)) {
      const std::string_view after = text.substr(1 + close.size());
      return 1 + close.size() + after.size() - strip(after, Side::kLeft).size();
    }
    if (takes_plus && text.starts_with('+') && text.substr(1).starts_with(close)) return 1 + close.size();
    if (!text.starts_with(close)) return 0;
    return close.size() + (trims_newline && text.substr(close.size()).starts_with('\n') ? 1 : 0);
  }

  Status comment(int line) {
    const size_t end = source_.find("#}", at_);
    if (end == kNowhere) return syntax_error(line, "missing end of comment tag");
    const bool is_signed = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+');
    const size_t close = is_signed ? end - 1 : end;
    advance(close - at_ + closing("#}", close, true, true));
    return {};
  }

  // Behind {% and its sign: where the body of a raw block starts, if this is one.
  size_t raw_body() const {
    std::string_view text = strip(rest(), Side::kLeft);
    if (!text.starts_with("raw")) return kNowhere;
    text = strip(text.substr(3), Side::kLeft);
    const size_t bytes = closing("%}", source_.size() - text.size(), false, false);
    return bytes == 0 ? kNowhere : source_.size() - text.size() + bytes;
  }

  Status raw(int line, size_t body) {
    advance(body - at_);
    for (size_t tag = source_.find("{%", at_); tag != kNowhere; tag = source_.find("{%", tag + 1)) {
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      const bool is_signed = sign == '-' || sign == '+';
      std::string_view text = strip(source_.substr(tag + (is_signed ? 3 : 2)), Side::kLeft);
      if (!text.starts_with("endraw")) continue;
      text = strip(text.substr(6), Side::kLeft);
      const size_t close = source_.size() - text.size();
      const size_t bytes = closing("%}", close, true, true);
      if (bytes == 0) continue;
      add_data(source_.substr(at_, tag - at_), sign, true);
      advance(close + bytes - at_);
      return {};
    }
    return syntax_error(line, "missing end of raw directive");
  }

  Status tag_tokens(bool is_variable) {
    open_.clear();
    while (at_ < source_.size()) {
      if (open_.empty()) {
        const size_t bytes = closing(is_variable ? "}}" : "%}", at_, !is_variable, !is_variable);
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
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != source_[at_]) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return syntax_error(line_, "a string is not closed");
    const std::string_view inside = source_.substr(at_ + 1, end - at_ - 1);
    TUFT_ASSIGN(std::string text, unescape(inside, line_));
    add(TokenKind::kString, std::move(text));
    advance(inside.size() + 2);
    return {};
  }

  // Bytes of digits with single underscores between them.
  size_t digits(size_t at) const {
    size_t end = at;
    while (end < source_.size() &&
           (is_digit(source_[end]) ||
            (end > at && source_[end] == '_' && end + 1 < source_.size() && is_digit(source_[end + 1])))) {
      ++end;
    }
    return end - at;
  }

  // Bytes of a float at the current place, 0 if there is none.
  size_t float_bytes() const {
    if (at_ > 0 && source_[at_ - 1] == '.') return 0;
    size_t end = at_ + digits(at_);
    bool is_float = false;
    if (end < source_.size() && source_[end] == '.' && digits(end + 1) > 0) {
      end += 1 + digits(end + 1);
      is_float = true;
    }
    if (end < source_.size() && (source_[end] | 0x20) == 'e') {
      const size_t sign = end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 1 : 0;
      if (digits(end + 1 + sign) > 0) return end + 1 + sign + digits(end + 1 + sign) - at_;
    }
    return is_float ? end - at_ : 0;
  }

  size_t integer_bytes() const {
    const std::string_view text = rest();
    static constexpr std::array<std::pair<char, std::string_view>, 3> kBases = {
        {{'b', "01"}, {'o', "01234567"}, {'x', "0123456789abcdefABCDEF"}}};
    for (const auto& [letter, allowed] : kBases) {
      if (text.size() < 3 || text[0] != '0' || (text[1] | 0x20) != letter) continue;
      size_t end = 2;
      while (end < text.size()) {
        const size_t digit = end + (text[end] == '_' ? 1 : 0);
        if (digit >= text.size() || allowed.find(text[digit]) == kNowhere) break;
        end = digit + 1;
      }
      if (end > 2) return end;
    }
    if (text[0] != '0') return digits(at_);
    size_t end = 1;  // zeros only: 007 is the number 0 and the number 7
    while (end < text.size()) {
      const size_t digit = end + (text[end] == '_' ? 1 : 0);
      if (digit >= text.size() || text[digit] != '0') break;
      end = digit + 1;
    }
    return end;
  }

  Status number() {
    if (const size_t bytes = float_bytes(); bytes > 0) {
      const auto value = parse_float(rest().substr(0, bytes));
      if (!value) return syntax_error(line_, "a number that cannot be read");
      add(TokenKind::kFloat, std::string(rest().substr(0, bytes))).number = *value;
      advance(bytes);
      return {};
    }
    const size_t bytes = integer_bytes();
    const auto value = parse_integer(rest().substr(0, bytes), 0);
    if (!value) return not_supported(line_, "an integer beyond 64 bits");
    add(TokenKind::kInteger, std::string(rest().substr(0, bytes))).integer = *value;
    advance(bytes);
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
  std::string open_;  // what closes the brackets that are open
  std::vector<Token> tokens_;
};

}  // namespace

Error syntax_error(int line, const std::string& what) {
  return invalid_argument("chat template, line " + std::to_string(line) + ": " + what, "template_syntax");
}

Error not_supported(int line, const std::string& what) {
  return {ErrorCode::kUnimplemented,
          "chat template, line " + std::to_string(line) + ": " + what + " is not supported; rewrite it without",
          "template_unsupported"};
}

Result<std::vector<Token>> tokenize(std::string_view source) {
  const std::string text = normalize(source);
  return Lexer(text).run();
}

}  // namespace tuft::chat
