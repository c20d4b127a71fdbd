#include "tokenizer/normalizer.h"

#include <algorithm>
#include <array>

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

using Characters = std::vector<utf8proc_int32_t>;

Error form_error(utf8proc_ssize_t code) {
  return internal_error(std::string("normalizing a text failed: ") + utf8proc_errmsg(code));
}

// Replaces each character by those that it consists of.
Result<Characters> decomposed(std::string_view text, utf8proc_option_t form) {
  constexpr utf8proc_ssize_t kPartsMax = 32;  // U+FDFA consists of 18, the most of all
  std::array<utf8proc_int32_t, kPartsMax> parts{};
  Characters out;
  out.reserve(text.size() + 1);
  while (!text.empty()) {
    utf8proc_int32_t character = 0;
    const auto bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                        static_cast<utf8proc_ssize_t>(text.size()), &character);
    if (bytes < 0) return form_error(bytes);
    text.remove_prefix(static_cast<size_t>(bytes));
    const auto count = utf8proc_decompose_char(character, parts.data(), kPartsMax, form, nullptr);
    if (count < 0 || count > kPartsMax) return form_error(count);
    out.insert(out.end(), parts.begin(), parts.begin() + count);
  }
  return out;
}

// Sorts the marks between two other characters by their class, as Unicode's canonical ordering says.
void put_marks_in_order(Characters& text) {
  const auto class_of = [](utf8proc_int32_t character) { return utf8proc_get_property(character)->combining_class; };
  const auto is_mark = [&](utf8proc_int32_t character) { return class_of(character) != 0; };
  const auto earlier = [&](utf8proc_int32_t one, utf8proc_int32_t other) { return class_of(one) < class_of(other); };
  for (auto begin = std::find_if(text.begin(), text.end(), is_mark); begin != text.end();) {
    const auto end = std::find_if_not(begin, text.end(), is_mark);
    std::stable_sort(begin, end, earlier);
    begin = std::find_if(end, text.end(), is_mark);
  }
}

// Gives what utf8proc_map() gives, which takes quadratic time for many marks.
Result<std::string> unicode_form(std::string_view text, int options) {
  const auto form = static_cast<utf8proc_option_t>(options);
  TUFT_ASSIGN(Characters characters, decomposed(text, form));
  put_marks_in_order(characters);
  const auto length = static_cast<utf8proc_ssize_t>(characters.size());
  characters.push_back(0);  // utf8proc_reencode() ends its bytes, which replace the characters, with a zero
  const auto bytes = utf8proc_reencode(characters.data(), length, form);
  if (bytes < 0) return form_error(bytes);
  return std::string(reinterpret_cast<const char*>(characters.data()), static_cast<size_t>(bytes));
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
