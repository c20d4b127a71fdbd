// Filters whose input is taken as text, and `int`.
#include <algorithm>
#include <string>
#include <utility>

#include "chat/filters.h"
#include "chat/json_text.h"
#include "chat/methods.h"
#include "chat/text.h"
#include "chat/unicode.h"

namespace tuft::chat {
namespace {

template <std::string (*Change)(std::string_view)>
Result<Value> change(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_TRY(bind("the filter", arguments, {}));
  TUFT_ASSIGN(const std::string text, to_text(budget, input));
  TUFT_TRY(budget.allocate(2 * text.size()));
  return make_string(budget, Change(text));
}

Result<Value> string(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_TRY(bind("the filter", arguments, {}));
  if (input.text() != nullptr) return input;
  TUFT_ASSIGN(std::string text, to_text(budget, input));
  return make_string(budget, std::move(text));
}

Result<Value> trim(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values, bind("trim", arguments, {{"chars", kNotGiven}}));
  TUFT_ASSIGN(const std::string text, to_text(budget, input));
  if (values[0].is<None>()) return make_string(budget, std::string(strip(text, Side::kBoth)));
  TUFT_ASSIGN(const auto set, text_argument(values[0], "trim: chars"));
  return make_string(budget, std::string(strip(text, set, Side::kBoth)));
}

Result<Value> replace(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values, bind("replace", arguments, {{"old"}, {"new"}}));
  TUFT_ASSIGN(const std::string text, to_text(budget, input));
  TUFT_ASSIGN(const std::string old, to_text(budget, values[0]));
  TUFT_ASSIGN(const std::string with, to_text(budget, values[1]));
  return replace_text(budget, text, old, with);
}

Result<Value> join(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values, bind("join", arguments, {{"d", string_value("")}}));
  TUFT_ASSIGN(const Values items, items_of(budget, input));
  TUFT_ASSIGN(const std::string separator, to_text(budget, values[0]));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    TUFT_ASSIGN(const std::string part, to_text(budget, items[i]));
    TUFT_TRY(budget.allocate(part.size() + separator.size()));
    if (i > 0) out += separator;
    out += part;
  }
  return make_string(budget, std::move(out));
}

Result<std::string> indentation(Budget& budget, const Value& width) {
  TUFT_ASSIGN(const int64_t count, integer_argument(width, "the width of an indentation"));
  const auto spaces = static_cast<size_t>(std::max<int64_t>(count, 0));
  TUFT_TRY(budget.allocate(spaces));
  return std::string(spaces, ' ');
}

Result<Value> indent(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values, bind("indent", arguments, {{"width", Value(int64_t{4})}, {"first", Value(false)}}));
  TUFT_ASSIGN(const std::string space, indentation(budget, values[0]));
  if (const auto* missing = input.as<Undefined>()) return template_error(*missing->why);
  TUFT_ASSIGN(const auto text, text_argument(input, "the input of indent"));
  std::string out = values[1].truthy() ? space : "";
  bool is_first = true;
  const std::string ended = std::string(text) + "\n";
  for (const std::string_view line : split_lines(ended)) {
    TUFT_TRY(budget.allocate(line.size() + space.size() + 1));
    if (!is_first) out += '\n';
    if (!is_first && !line.empty()) out += space;
    out += line;
    is_first = false;
  }
  return make_string(budget, std::move(out));
}

Result<Value> tojson(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(
      const Values values,
      bind("tojson", arguments, {{"ensure_ascii", Value(false)}, {"indent", kNotGiven}, {"separators", kNotGiven}}));
  JsonStyle style;
  style.ascii_only = values[0].truthy();
  style.pretty = !values[1].is<None>();
  if (style.pretty) {
    TUFT_ASSIGN(style.indent, indentation(budget, values[1]));
    style.item_separator = ",";
  }
  if (!values[2].is<None>()) {
    const Values* both = values[2].sequence();
    if (both == nullptr || both->size() != 2) return template_error("tojson: separators must be two strings");
    TUFT_ASSIGN(style.item_separator, text_argument((*both)[0], "tojson: a separator"));
    TUFT_ASSIGN(style.key_separator, text_argument((*both)[1], "tojson: a separator"));
  }
  TUFT_ASSIGN(std::string text, to_json(budget, input, style));
  return make_string(budget, std::move(text));
}

Result<Value> integer(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values, bind("int", arguments, {{"default", Value(int64_t{0})}}));
  if (const auto* missing = input.as<Undefined>()) return template_error(*missing->why);
  if (const auto value = input.integer()) return Value(*value);
  auto number = input.number();
  if (const auto* text = input.text()) {
    TUFT_TRY(budget.scan(text->size()));
    if (const auto value = parse_integer(*text)) return Value(*value);
    if (text->find('_') != std::string::npos) return unsupported_here("int of a text with an underscore");
    number = parse_float(*text);
  }
  if (!number) return values[0];
  constexpr double kLimit = 9223372036854775808.0;
  if (!(*number >= -kLimit && *number < kLimit)) return unsupported_here("an integer beyond 64 bits");
  return Value(static_cast<int64_t>(*number));
}

constexpr FilterEntry kTextFilters[] = {
    {"capitalize", change<capitalize>}, {"indent", indent},   {"int", integer}, {"join", join},
    {"lower", change<to_lower>},        {"replace", replace}, {"safe", string}, {"string", string},
    {"title", change<title_filter>},    {"tojson", tojson},   {"trim", trim},   {"upper", change<to_upper>},
};

}  // namespace

std::span<const FilterEntry> text_filters() {
  return kTextFilters;
}

}  // namespace tuft::chat
