#include "tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace tuft::tokenizer {
namespace {

// The meaning of \s in Oniguruma is White_Space. PCRE2 adds U+180E, which is not a space since Unicode 6.3.
constexpr std::string_view kSpaces =
    "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";

std::string with_unicode_spaces(std::string_view expression) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c != '\\' || i + 1 == expression.size()) {
      if (c == '[' && !in_class) in_class = true;
      if (c == ']') in_class = false;
      out += c;
      continue;
    }
    const char escaped = expression[++i];
    if (escaped == 's') {
      out += in_class ? std::string(kSpaces) : "[" + std::string(kSpaces) + "]";
    } else if (escaped == 'S' && !in_class) {
      out += "[^" + std::string(kSpaces) + "]";
    } else {
      out += {'\\', escaped};
    }
  }
  return out;
}

std::string error_text(int code) {
  PCRE2_UCHAR buffer[256];
  return pcre2_get_error_message(code, buffer, sizeof(buffer)) < 0 ? "error " + std::to_string(code)
                                                                   : reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Pattern::Code {
  explicit Code(pcre2_code* compiled) : code(compiled) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  pcre2_code* const code;
};

Result<Pattern> Pattern::compile(std::string_view expression, std::string_view origin) {
  const std::string source = with_unicode_spaces(expression);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &error, &offset, nullptr);
  if (code == nullptr) {
    return invalid_argument(std::string(origin) + ": the pattern '" + std::string(expression) +
                                "' cannot be compiled: " + error_text(error),
                            "bad_tokenizer");
  }
  // A system can forbid the JIT; matching is then slower, with the same result.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  Pattern out;
  out.code_ = std::make_shared<Code>(code);
  return out;
}

Pattern Pattern::literal(std::string_view text) {
  Pattern out;
  out.literal_ = text;
  return out;
}

Status Pattern::for_each_match(std::string_view text,
                               const std::function<Status(size_t begin, size_t end)>& take) const {
  if (!code_) {
    if (literal_.empty()) return {};
    for (size_t at = 0; (at = text.find(literal_, at)) != std::string_view::npos; at += literal_.size())
      TUFT_TRY(take(at, at + literal_.size()));
    return {};
  }
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
      pcre2_match_data_create_from_pattern(code_->code, nullptr), &pcre2_match_data_free);
  for (size_t at = 0; at < text.size();) {
    const int found = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                  PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, data.get(), nullptr);
    if (found == PCRE2_ERROR_NOMATCH) return {};
    if (found < 0) return internal_error("splitting a text for the tokenizer failed: " + error_text(found));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    TUFT_TRY(take(range[0], range[1]));
    at = range[1];
  }
  return {};
}

}  // namespace tuft::tokenizer
