#include "tokenizer/normalizer.h"

#include <cstdlib>

#include <nlohmann/json.hpp>
#include <utf8proc.h>

#include "tokenizer/utf8.h"

namespace tuft::tokenizer {
namespace {

template <typename... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Match(Cases...) -> Match<Cases...>;  // clang 14 does not deduce it for aggregates

Result<std::string> unicode_form(const std::string& text, int options) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &mapped, static_cast<utf8proc_option_t>(options));
  if (length < 0) return internal_error(std::string("normalizing a text failed: ") + utf8proc_errmsg(length));
  std::string out(reinterpret_cast<const char*>(mapped), static_cast<size_t>(length));
  std::free(mapped);
  return out;
}

// Maps each character alone, as tokenizers do: without case folding or a rule for a final sigma.
std::string lowercase(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const char32_t character = next_character(text, at);
    utf8proc_uint8_t bytes[4];
    const auto length = utf8proc_encode_char(utf8proc_tolower(static_cast<utf8proc_int32_t>(character)), bytes);
    out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
  }
  return out;
}

Result<std::string> replace_all(const std::string& text, const Pattern& pattern, std::string_view with) {
  std::string out;
  size_t copied = 0;
  TUFT_TRY(pattern.for_each_match(text, [&](size_t begin, size_t end) -> Status {
    out.append(text, copied, begin - copied).append(with);
    copied = end;
    return {};
  }));
  return out.append(text, copied);
}

std::string strip(std::string_view text, bool left, bool right) {
  size_t begin = 0;
  while (left && begin < text.size()) {
    size_t next = begin;
    if (!is_space(next_character(text, next))) break;
    begin = next;
  }
  size_t end = text.size();
  while (right && end > begin) {
    size_t last = previous_character(text, end);
    const size_t start = last;
    if (!is_space(next_character(text, last))) break;
    end = start;
  }
  return std::string(text.substr(begin, end - begin));
}

}  // namespace

Result<Pattern> read_pattern(const Json& pattern, std::string_view origin) {
  if (const Json& expression = member(pattern, "Regex"); expression.is_string())
    return Pattern::compile(expression.get<std::string>(), origin);
  if (const Json& literal = member(pattern, "String"); literal.is_string())
    return Pattern::literal(literal.get<std::string>());
  return malformed(origin, "a pattern must hold a String or a Regex");
}

Result<Normalizer::Step> Normalizer::read_step(const Json& part, std::string_view origin) {
  const std::string type = type_of(part);
  constexpr int kCompose = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
  constexpr int kDecompose = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
  if (type == "NFC") return Step(Form{kCompose});
  if (type == "NFD") return Step(Form{kDecompose});
  if (type == "NFKC") return Step(Form{kCompose | UTF8PROC_COMPAT});
  if (type == "NFKD") return Step(Form{kDecompose | UTF8PROC_COMPAT});
  if (type == "Lowercase") return Step(Lowercase{});
  if (type == "Prepend") return Step(Prepend{tokenizer::text(part, "prepend")});
  if (type == "Strip") return Step(Strip{flag(part, "strip_left", true), flag(part, "strip_right", true)});
  if (type == "Replace") {
    TUFT_ASSIGN(Pattern pattern, read_pattern(member(part, "pattern"), origin));
    return Step(Replace{std::move(pattern), tokenizer::text(part, "content")});
  }
  return unsupported(origin, "normalizer '" + type + "' is not read");
}

Result<Normalizer> Normalizer::read(const Json& part, std::string_view origin) {
  Normalizer out;
  for (const Json* step : parts_of(part, "normalizers")) {
    TUFT_ASSIGN(Step read, read_step(*step, origin));
    out.steps_.push_back(std::move(read));
  }
  return out;
}

Result<std::string> Normalizer::run(const Step& step, std::string text) {
  return std::visit(
      Match{[&](const Form& form) { return unicode_form(text, form.options); },
            [&](const Lowercase&) { return Result<std::string>(lowercase(text)); },
            [&](const Prepend& prepend) { return Result<std::string>(text.empty() ? text : prepend.text + text); },
            [&](const Replace& replace) { return replace_all(text, replace.pattern, replace.with); },
            [&](const Strip& sides) { return Result<std::string>(strip(text, sides.left, sides.right)); }},
      step);
}

Result<std::string> Normalizer::apply(std::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) {
    TUFT_ASSIGN(out, run(step, std::move(out)));
  }
  return out;
}

}  // namespace tuft::tokenizer
