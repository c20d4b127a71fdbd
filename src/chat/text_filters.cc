// Filters that make text of whatever they get.
#include <string>
#include <utility>
#include <vector>

#include "chat/filters.h"
#include "chat/json_text.h"
#include "chat/operators.h"
#include "chat/text.h"
#include "chat/text_operations.h"
#include "chat/unicode.h"

namespace tuft::chat {
namespace {

const Value kNone = None{};

// Words begin behind white space and behind these; Jinja's own rule, not str.title's.
std::string title_filter_text(std::string_view text) {
  static constexpr std::string_view kSeparators = "-({[<";
  const auto separates = [](char32_t c) {
    return is_space(c) || (c < 0x80 && kSeparators.find(static_cast<char>(c)) != std::string_view::npos);
  };
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto [c, bytes] = code_point_at(text, at);
    out += to_upper(text.substr(at, bytes));
    at += bytes;
    if (separates(c)) continue;
    size_t end = at;
    while (end < text.size() && !separates(code_point_at(text, end).value)) end += code_point_at(text, end).bytes;
    out += to_lower(text.substr(at, end - at));
    at = end;
  }
  return out;
}

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
  TUFT_ASSIGN(const Values values, bind("trim", arguments, {{"chars", kNone}}));
  TUFT_ASSIGN(const std::string text, to_text(budget, input));
  if (values[0].is<None>()) return make_string(budget, std::string(strip(text, Side::kBoth)));
  TUFT_ASSIGN(const auto set, text_argument(values[0], "trim: chars"));
  return make_string(budget, std::string(strip(text, set, Side::kBoth)));
}

Result<Value> replace(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values, bind("replace", arguments, {{"old"}, {"new"}, {"count", kNone}}));
  TUFT_ASSIGN(const std::string text, to_text(budget, input));
  TUFT_ASSIGN(const std::string old, to_text(budget, values[0]));
  TUFT_ASSIGN(const std::string with, to_text(budget, values[1]));
  int64_t count = -1;
  if (!values[2].is<None>()) {
    TUFT_ASSIGN(count, integer_argument(values[2], "replace: count"));
  }
  TUFT_ASSIGN(std::string out, replace_text(budget, text, old, with, count));
  return make_string(budget, std::move(out));
}

Result<Value> join(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values, bind("join", arguments, {{"d", string_value("")}, {"attribute", kNone}}));
  TUFT_ASSIGN(const Values items, items_of(budget, input));
  std::vector<std::string> parts;
  for (Value item : items) {
    if (!values[1].is<None>()) {
      TUFT_ASSIGN(item, get_path(budget, item, values[1]));
    }
    TUFT_ASSIGN(std::string part, to_text(budget, item));
    parts.push_back(std::move(part));
  }
  TUFT_ASSIGN(const std::string separator, to_text(budget, values[0]));
  TUFT_ASSIGN(std::string out, join_text(budget, separator, parts));
  return make_string(budget, std::move(out));
}

Result<std::string> indentation(Budget& budget, const Value& width) {
  if (const auto* text = width.text()) return *text;
  TUFT_ASSIGN(const int64_t count, integer_argument(width, "the width of an indentation"));
  return pad_text(budget, "", count, " ", true, false);
}

Result<Value> indent(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(
      const Values values,
      bind("indent", arguments, {{"width", Value(int64_t{4})}, {"first", Value(false)}, {"blank", Value(false)}}));
  TUFT_ASSIGN(const std::string space, indentation(budget, values[0]));
  if (const auto* missing = input.as<Undefined>()) return template_error(*missing->why);
  TUFT_ASSIGN(const auto text, text_argument(input, "what indent gets"));
  std::string out = values[1].truthy() ? space : "";
  bool is_first = true;
  const std::string ended = std::string(text) + "\n";
  for (const std::string_view line : split_lines(ended, false)) {
    TUFT_TRY(budget.allocate(line.size() + space.size() + 1));
    if (!is_first) {
      out += '\n';
      if (!line.empty() || values[2].truthy()) out += space;
    }
    out += line;
    is_first = false;
  }
  return make_string(budget, std::move(out));
}

Status read_separators(const Value& value, JsonStyle& style) {
  if (value.is<None>()) {
    if (style.pretty) style.item_separator = ",";
    return {};
  }
  const Values* both = value.sequence();
  if (both == nullptr || both->size() != 2) return template_error("tojson: separators must be two strings");
  TUFT_ASSIGN(style.item_separator, text_argument((*both)[0], "tojson: a separator"));
  TUFT_ASSIGN(style.key_separator, text_argument((*both)[1], "tojson: a separator"));
  return {};
}

Result<Value> tojson(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(
      const Values values,
      bind("tojson", arguments,
           {{"ensure_ascii", Value(false)}, {"indent", kNone}, {"separators", kNone}, {"sort_keys", Value(false)}}));
  JsonStyle style;
  style.ascii_only = values[0].truthy();
  style.sort_keys = values[3].truthy();
  style.pretty = !values[1].is<None>();
  if (style.pretty) {
    TUFT_ASSIGN(style.indent, indentation(budget, values[1]));
  }
  TUFT_TRY(read_separators(values[2], style));
  TUFT_ASSIGN(std::string text, to_json(budget, input, style));
  return make_string(budget, std::move(text));
}

constexpr FilterEntry kFilters[] = {
    {"capitalize", change<capitalize>},
    {"indent", indent},
    {"join", join},
    {"lower", change<to_lower>},
    {"replace", replace},
    {"safe", string},
    {"string", string},
    {"title", change<title_filter_text>},
    {"tojson", tojson},
    {"trim", trim},
    {"upper", change<to_upper>},
};

}  // namespace

std::span<const FilterEntry> text_filters() {
  return kFilters;
}

}  // namespace tuft::chat
