#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "chat/methods.h"
#include "chat/text.h"
#include "chat/text_operations.h"
#include "chat/unicode.h"

namespace tuft::chat {
namespace {

using Text = const std::string&;
using Arguments = const CallArguments&;

const Value kNone = None{};

Result<Value> counted(Budget& budget, Result<std::string> text) {
  TUFT_ASSIGN(std::string made, std::move(text));
  return make_string(budget, std::move(made));
}

template <std::string (*Change)(std::string_view)>
Result<Value> change(Budget& budget, Text text, Arguments arguments) {
  TUFT_TRY(bind("the method", arguments, {}));
  TUFT_TRY(budget.allocate(3 * text.size()));
  return make_string(budget, Change(text));
}

template <Side kSide>
Result<Value> strip_method(Budget& budget, Text text, Arguments arguments) {
  TUFT_ASSIGN(const Values values, bind("strip", arguments, {{"chars", kNone}}));
  TUFT_TRY(budget.scan(text.size()));
  if (values[0].is<None>()) return make_string(budget, std::string(strip(text, kSide)));
  TUFT_ASSIGN(const auto set, text_argument(values[0], "strip: chars"));
  return make_string(budget, std::string(strip(text, set, kSide)));
}

template <bool kFromRight>
Result<Value> split_method(Budget& budget, Text text, Arguments arguments) {
  TUFT_ASSIGN(const Values values, bind("split", arguments, {{"sep", kNone}, {"maxsplit", Value(int64_t{-1})}}));
  TUFT_ASSIGN(const int64_t limit, integer_argument(values[1], "split: maxsplit"));
  if (values[0].is<None>()) return split_text(budget, text, std::nullopt, limit, kFromRight);
  TUFT_ASSIGN(const auto separator, text_argument(values[0], "split: sep"));
  return split_text(budget, text, separator, limit, kFromRight);
}

Result<Value> splitlines(Budget& budget, Text text, Arguments arguments) {
  TUFT_ASSIGN(const Values values, bind("splitlines", arguments, {{"keepends", Value(false)}}));
  TUFT_TRY(budget.allocate(text.size()));
  Values out;
  for (const std::string_view line : split_lines(text, values[0].truthy())) {
    TUFT_ASSIGN(auto piece, make_string(budget, std::string(line)));
    out.push_back(std::move(piece));
  }
  return make_list(budget, std::move(out));
}

// The part of a text between two places as methods take them, in bytes, and the first one's place in characters.
struct Window {
  size_t begin = 0;
  size_t end = 0;
  int64_t first = 0;
  bool exists = true;  // not if it starts behind the end
};

Result<Window> window(Budget& budget, Text text, const Value& start, const Value& stop) {
  TUFT_TRY(budget.scan(text.size()));
  const auto length = static_cast<int64_t>(count_code_points(text));
  const auto place = [&](const Value& value, int64_t fallback) -> Result<int64_t> {
    if (value.is<None>()) return fallback;
    TUFT_ASSIGN(const int64_t index, integer_argument(value, "a place in a string"));
    return index < 0 ? std::max<int64_t>(index + length, 0) : index;
  };
  TUFT_ASSIGN(const int64_t first, place(start, 0));
  TUFT_ASSIGN(const int64_t last, place(stop, length));
  Window out;
  out.first = first;
  out.exists = first <= length && first <= std::min(last, length);
  if (!out.exists) return out;
  out.begin = byte_offset(text, static_cast<size_t>(first));
  out.end = byte_offset(text, static_cast<size_t>(std::min(last, length)));
  return out;
}

template <bool kAtEnd>
Result<Value> starts_or_ends(Budget& budget, Text text, Arguments arguments) {
  TUFT_ASSIGN(const Values values,
              bind(kAtEnd ? "endswith" : "startswith", arguments, {{"prefix"}, {"start", kNone}, {"end", kNone}}));
  TUFT_ASSIGN(const Window part, window(budget, text, values[1], values[2]));
  const auto inside = std::string_view(text).substr(part.begin, part.end - part.begin);
  const Values one{values[0]};
  for (const Value& candidate : values[0].is<Tuple>() ? *values[0].sequence() : one) {
    TUFT_ASSIGN(const auto wanted, text_argument(candidate, "the argument of startswith or endswith"));
    TUFT_TRY(budget.scan(wanted.size()));
    if (part.exists && (kAtEnd ? inside.ends_with(wanted) : inside.starts_with(wanted))) return Value(true);
  }
  return Value(false);
}

Result<Value> replace(Budget& budget, Text text, Arguments arguments) {
  TUFT_ASSIGN(const Values values, bind("replace", arguments, {{"old"}, {"new"}, {"count", Value(int64_t{-1})}}));
  TUFT_ASSIGN(const auto old, text_argument(values[0], "replace: old"));
  TUFT_ASSIGN(const auto with, text_argument(values[1], "replace: new"));
  TUFT_ASSIGN(const int64_t count, integer_argument(values[2], "replace: count"));
  return counted(budget, replace_text(budget, text, old, with, count));
}

// Where a search ends, in characters; -1 for nowhere.
template <bool kLast>
Result<int64_t> search(Budget& budget, Text text, Arguments arguments) {
  TUFT_ASSIGN(const Values values, bind("find", arguments, {{"sub"}, {"start", kNone}, {"end", kNone}}));
  TUFT_ASSIGN(const auto wanted, text_argument(values[0], "find: sub"));
  TUFT_ASSIGN(const Window part, window(budget, text, values[1], values[2]));
  if (!part.exists) return int64_t{-1};
  const auto inside = std::string_view(text).substr(part.begin, part.end - part.begin);
  size_t found = kLast ? inside.size() : 0;
  if (!wanted.empty()) found = kLast ? find_text_last(inside, wanted, inside.size()) : find_text(inside, wanted, 0);
  if (found == std::string_view::npos) return int64_t{-1};
  return part.first + static_cast<int64_t>(count_code_points(inside.substr(0, found)));
}

template <bool kLast, bool kMustExist>
Result<Value> find(Budget& budget, Text text, Arguments arguments) {
  TUFT_ASSIGN(const int64_t place, search<kLast>(budget, text, arguments));
  if (kMustExist && place < 0) return template_error("substring not found");
  return Value(place);
}

Result<Value> count(Budget& budget, Text text, Arguments arguments) {
  TUFT_ASSIGN(const Values values, bind("count", arguments, {{"sub"}, {"start", kNone}, {"end", kNone}}));
  TUFT_ASSIGN(const auto wanted, text_argument(values[0], "count: sub"));
  TUFT_ASSIGN(const Window part, window(budget, text, values[1], values[2]));
  if (!part.exists) return Value(int64_t{0});
  const auto inside = std::string_view(text).substr(part.begin, part.end - part.begin);
  if (wanted.empty()) return Value(static_cast<int64_t>(count_code_points(inside)) + 1);
  int64_t times = 0;
  for (size_t at = find_text(inside, wanted, 0); at != std::string_view::npos;
       at = find_text(inside, wanted, at + wanted.size())) {
    ++times;
  }
  return Value(times);
}

Result<Value> join(Budget& budget, Text text, Arguments arguments) {
  TUFT_ASSIGN(const Values values, bind("join", arguments, {{"iterable"}}));
  TUFT_ASSIGN(const Values items, items_of(budget, values[0]));
  std::vector<std::string> parts;
  for (const Value& item : items) {
    TUFT_ASSIGN(const auto part, text_argument(item, "join: every item"));
    TUFT_TRY(budget.allocate(part.size()));
    parts.emplace_back(part);
  }
  return counted(budget, join_text(budget, text, parts));
}

template <CharacterClass kClass>
Result<Value> is_class(Budget& budget, Text text, Arguments arguments) {
  TUFT_TRY(bind("the method", arguments, {}));
  TUFT_TRY(budget.scan(text.size()));
  return Value(all_of_class(text, kClass));
}

template <bool (*Check)(std::string_view)>
Result<Value> is_case(Budget& budget, Text text, Arguments arguments) {
  TUFT_TRY(bind("the method", arguments, {}));
  TUFT_TRY(budget.scan(text.size()));
  return Value(Check(text));
}

template <bool kLeft, bool kRight>
Result<Value> pad(Budget& budget, Text text, Arguments arguments) {
  TUFT_ASSIGN(const Values values, bind("the method", arguments, {{"width"}, {"fillchar", string_value(" ")}}));
  TUFT_ASSIGN(const int64_t width, integer_argument(values[0], "width"));
  TUFT_ASSIGN(const auto fill, text_argument(values[1], "fillchar"));
  return counted(budget, pad_text(budget, text, width, fill, kLeft, kRight));
}

Result<Value> zfill(Budget& budget, Text text, Arguments arguments) {
  TUFT_ASSIGN(const Values values, bind("zfill", arguments, {{"width"}}));
  TUFT_ASSIGN(const int64_t width, integer_argument(values[0], "zfill: width"));
  const bool has_sign = text.starts_with('-') || text.starts_with('+');
  TUFT_ASSIGN(std::string digits, pad_text(budget, std::string_view(text).substr(has_sign ? 1 : 0),
                                           width - (has_sign ? 1 : 0), "0", true, false));
  return make_string(budget, text.substr(0, has_sign ? 1 : 0) + digits);
}

template <bool kLast>
Result<Value> partition(Budget& budget, Text text, Arguments arguments) {
  TUFT_ASSIGN(const Values values, bind("partition", arguments, {{"sep"}}));
  TUFT_ASSIGN(const auto separator, text_argument(values[0], "partition: sep"));
  if (separator.empty()) return template_error("empty separator");
  TUFT_TRY(budget.allocate(text.size()));
  const size_t at = kLast ? find_text_last(text, separator, text.size()) : find_text(text, separator, 0);
  std::array<std::string, 3> parts =
      kLast ? std::array<std::string, 3>{"", "", text} : std::array<std::string, 3>{text, "", ""};
  if (at != std::string::npos) {
    parts = {text.substr(0, at), std::string(separator), text.substr(at + separator.size())};
  }
  Values out;
  for (std::string& part : parts) out.push_back(string_value(std::move(part)));
  return make_tuple(budget, std::move(out));
}

template <bool kSuffix>
Result<Value> remove_end(Budget& budget, Text text, Arguments arguments) {
  TUFT_ASSIGN(const Values values, bind("the method", arguments, {{"affix"}}));
  TUFT_ASSIGN(const auto affix, text_argument(values[0], "the argument of removeprefix or removesuffix"));
  if (kSuffix && text.ends_with(affix)) return make_string(budget, text.substr(0, text.size() - affix.size()));
  if (!kSuffix && text.starts_with(affix)) return make_string(budget, text.substr(affix.size()));
  return make_string(budget, text);
}

struct Method {
  std::string_view name;
  Result<Value> (*call)(Budget&, Text, Arguments);
};

constexpr Method kMethods[] = {
    {"capitalize", change<capitalize>},
    {"center", pad<true, true>},
    {"count", count},
    {"endswith", starts_or_ends<true>},
    {"find", find<false, false>},
    {"index", find<false, true>},
    {"isalnum", is_class<CharacterClass::kAlphanumeric>},
    {"isalpha", is_class<CharacterClass::kAlpha>},
    {"isdigit", is_class<CharacterClass::kDigit>},
    {"islower", is_case<is_lower>},
    {"isspace", is_class<CharacterClass::kSpace>},
    {"isupper", is_case<is_upper>},
    {"join", join},
    {"ljust", pad<false, true>},
    {"lower", change<to_lower>},
    {"lstrip", strip_method<Side::kLeft>},
    {"partition", partition<false>},
    {"removeprefix", remove_end<false>},
    {"removesuffix", remove_end<true>},
    {"replace", replace},
    {"rfind", find<true, false>},
    {"rindex", find<true, true>},
    {"rjust", pad<true, false>},
    {"rpartition", partition<true>},
    {"rsplit", split_method<true>},
    {"rstrip", strip_method<Side::kRight>},
    {"split", split_method<false>},
    {"splitlines", splitlines},
    {"startswith", starts_or_ends<false>},
    {"strip", strip_method<Side::kBoth>},
    {"title", change<title_case>},
    {"upper", change<to_upper>},
    {"zfill", zfill},
};

const Method* find_text_method(std::string_view name) {
  const auto* found = std::ranges::find(kMethods, name, &Method::name);
  return found == std::end(kMethods) ? nullptr : found;
}

}  // namespace

bool is_text_method(std::string_view name) {
  return find_text_method(name) != nullptr;
}

Result<Value> call_text_method(Budget& budget, const std::string& text, std::string_view name,
                               const CallArguments& arguments) {
  return find_text_method(name)->call(budget, text, arguments);
}

}  // namespace tuft::chat
