#include "chat/methods.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "chat/unicode.h"

namespace tuft::chat {
namespace {

constexpr size_t kNotFound = std::string_view::npos;

using Text = const std::string&;
using Arguments = const CallArguments&;

template <std::string (*Change)(std::string_view)>
Result<Value> change(Budget& budget, Text text, Arguments arguments) {
  TUFT_TRY(bind("the method", arguments, {}));
  TUFT_TRY(budget.allocate(3 * text.size()));
  return make_string(budget, Change(text));
}

template <Side kSide>
Result<Value> strip_method(Budget& budget, Text text, Arguments arguments) {
  TUFT_ASSIGN(const Values values, bind("strip", arguments, {{"chars", Value(None{})}}));
  TUFT_TRY(budget.scan(text.size()));
  if (values[0].is<None>()) return make_string(budget, std::string(strip(text, kSide)));
  TUFT_ASSIGN(const auto set, text_argument(values[0], "strip: chars"));
  return make_string(budget, std::string(strip(text, set, kSide)));
}

// Splits at white space; at most `limit` times, then the rest is one piece.
std::vector<std::string_view> split_at_space(std::string_view text, size_t limit) {
  std::vector<std::string_view> out;
  text = strip(text, Side::kLeft);
  while (!text.empty() && out.size() < limit) {
    size_t end = 0;
    while (end < text.size() && !is_space(code_point_at(text, end).value)) end += code_point_at(text, end).bytes;
    out.push_back(text.substr(0, end));
    text = strip(text.substr(end), Side::kLeft);
  }
  if (!text.empty()) out.push_back(text);
  return out;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, size_t limit) {
  std::vector<std::string_view> out;
  size_t at = 0;
  while (out.size() < limit) {
    const size_t found = find_text(text, separator, at);
    if (found == kNotFound) break;
    out.push_back(text.substr(at, found - at));
    at = found + separator.size();
  }
  out.push_back(text.substr(at));
  return out;
}

Result<Value> split(Budget& budget, Text text, Arguments arguments) {
  TUFT_ASSIGN(const Values values,
              bind("split", arguments, {{"sep", Value(None{})}, {"maxsplit", Value(int64_t{-1})}}));
  TUFT_ASSIGN(const int64_t maxsplit, integer_argument(values[1], "split: maxsplit"));
  const size_t limit = maxsplit < 0 ? kNotFound : static_cast<size_t>(maxsplit);
  TUFT_TRY(budget.scan(text.size()));
  std::vector<std::string_view> pieces;
  if (values[0].is<None>()) {
    pieces = split_at_space(text, limit);
  } else {
    TUFT_ASSIGN(const auto separator, text_argument(values[0], "split: sep"));
    if (separator.empty()) return template_error("empty separator");
    pieces = split_at(text, separator, limit);
  }
  TUFT_TRY(budget.allocate(text.size() + pieces.size() * sizeof(std::string)));
  Values out;
  out.reserve(pieces.size());
  for (const std::string_view piece : pieces) out.push_back(string_value(std::string(piece)));
  return make_list(budget, std::move(out));
}

template <bool kAtEnd>
Result<Value> starts_or_ends(Budget& budget, Text text, Arguments arguments) {
  TUFT_ASSIGN(const Values values, bind(kAtEnd ? "endswith" : "startswith", arguments, {{"prefix"}}));
  TUFT_ASSIGN(const auto wanted, text_argument(values[0], "the argument of startswith or endswith"));
  TUFT_TRY(budget.scan(wanted.size()));
  return Value(kAtEnd ? text.ends_with(wanted) : text.starts_with(wanted));
}

Result<Value> replace(Budget& budget, Text text, Arguments arguments) {
  TUFT_ASSIGN(const Values values, bind("replace", arguments, {{"old"}, {"new"}}));
  TUFT_ASSIGN(const auto old, text_argument(values[0], "replace: old"));
  TUFT_ASSIGN(const auto with, text_argument(values[1], "replace: new"));
  return replace_text(budget, text, old, with);
}

struct TextMethod {
  std::string_view name;
  Result<Value> (*call)(Budget&, Text, Arguments);
};

constexpr TextMethod kTextMethods[] = {
    {"capitalize", change<capitalize>},
    {"endswith", starts_or_ends<true>},
    {"lower", change<to_lower>},
    {"lstrip", strip_method<Side::kLeft>},
    {"replace", replace},
    {"rstrip", strip_method<Side::kRight>},
    {"split", split},
    {"startswith", starts_or_ends<false>},
    {"strip", strip_method<Side::kBoth>},
    {"title", change<title_case>},
    {"upper", change<to_upper>},
};

constexpr std::string_view kDictMethods[] = {"get", "items", "keys", "values"};

// They would change a list. Jinja's sandbox hides them, so that a call fails; a template may name them in a branch that
// is not taken.
constexpr std::string_view kHiddenMethods[] = {"append", "pop"};

const TextMethod* find_text_method(std::string_view name) {
  const auto* found = std::ranges::find(kTextMethods, name, &TextMethod::name);
  return found == std::end(kTextMethods) ? nullptr : found;
}

bool is_dict_method(std::string_view name) {
  return std::ranges::find(kDictMethods, name) != std::end(kDictMethods);
}

Result<Value> call_dict_method(const DictRef& dict, std::string_view name, Arguments arguments) {
  if (name == "get") {
    TUFT_ASSIGN(const Values values, bind("get", arguments, {{"key"}, {"default", Value(None{})}}));
    const Value* found = dict->find(values[0]);
    return found == nullptr ? values[1] : *found;
  }
  TUFT_TRY(bind(name, arguments, {}));
  using enum DictView::Part;
  return Value(DictView{dict, name == "keys" ? kKeys : name == "values" ? kValues : kItems});
}

}  // namespace

bool is_method(std::string_view name) {
  return find_text_method(name) != nullptr || is_dict_method(name) ||
         std::ranges::find(kHiddenMethods, name) != std::end(kHiddenMethods);
}

std::optional<Value> find_method(const Value& object, std::string_view name) {
  const bool exists = (object.text() != nullptr && find_text_method(name) != nullptr) ||
                      (object.dict() != nullptr && is_dict_method(name));
  if (!exists) return std::nullopt;
  return Value(std::make_shared<const Callable>(Callable{Callable::Kind::kMethod, std::string(name), object, nullptr}));
}

Result<Value> call_method(Budget& budget, const Value& object, std::string_view name, const CallArguments& arguments) {
  if (const auto* text = object.text()) return find_text_method(name)->call(budget, *text, arguments);
  return call_dict_method(*object.as<DictRef>(), name, arguments);
}

Result<Value> replace_text(Budget& budget, std::string_view text, std::string_view old, std::string_view with) {
  if (old.empty()) return unsupported_here("replacing an empty string");
  TUFT_TRY(budget.scan(text.size()));
  std::string out;
  size_t at = 0;
  for (size_t found = find_text(text, old, 0); found != kNotFound; found = find_text(text, old, at)) {
    TUFT_TRY(budget.allocate(found - at + with.size()));
    out += text.substr(at, found - at);
    out += with;
    at = found + old.size();
  }
  out += text.substr(at);
  return make_string(budget, std::move(out));
}

}  // namespace tuft::chat
