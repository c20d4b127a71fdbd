// Filters that apply another filter, a test or an attribute to every item, and `default`.
#include <optional>
#include <string>
#include <utility>

#include "chat/filters.h"
#include "chat/operators.h"
#include "chat/tests.h"

namespace tuft::chat {
namespace {

// Returns the arguments after the first `count`.
CallArguments rest_of(const CallArguments& arguments, size_t count) {
  return {Values(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count), arguments.positional.end()),
          arguments.named};
}

// map('filter', arguments...) or map(attribute='path').
Result<Value> map(Budget& budget, const Value& input, const CallArguments& arguments) {
  if (!input.truthy()) return make_iterator(budget, {});
  const FilterEntry* filter = nullptr;
  CallArguments filter_arguments;
  Values attribute;
  if (arguments.positional.empty()) {
    TUFT_ASSIGN(attribute, bind("map", arguments, {{"attribute"}}));
  } else {
    TUFT_ASSIGN(const auto name, text_argument(arguments.positional[0], "map: the name of the filter"));
    filter = find_filter(name);
    if (filter == nullptr) return unsupported_here("the filter that map names");
    filter_arguments = rest_of(arguments, 1);
  }
  TUFT_ASSIGN(Values items, items_of(budget, input));
  for (Value& item : items) {
    TUFT_ASSIGN(item, filter ? filter->apply(budget, item, filter_arguments) : get_path(budget, item, attribute[0]));
  }
  return make_iterator(budget, std::move(items));
}

// select('test', arguments...), selectattr('path', 'test', arguments...) and their opposites; without a test, whether
// the value is true.
template <bool kKeep, bool kByAttribute>
Result<Value> select(Budget& budget, const Value& input, const CallArguments& arguments) {
  constexpr size_t kOffset = kByAttribute ? 1 : 0;
  if (arguments.positional.size() < kOffset) return template_error("Missing parameter for attribute name");
  if (!input.truthy()) return make_iterator(budget, {});
  const TestEntry* test = nullptr;
  CallArguments test_arguments;
  if (arguments.positional.size() > kOffset) {
    TUFT_ASSIGN(const auto name, text_argument(arguments.positional[kOffset], "the name of a test"));
    test = find_test(name);
    if (test == nullptr) return unsupported_here("the test that select names");
    test_arguments = rest_of(arguments, kOffset + 1);
  }
  TUFT_ASSIGN(const Values items, items_of(budget, input));
  Values out;
  for (const Value& item : items) {
    TUFT_TRY(budget.step());
    Value subject = item;
    if (kByAttribute) {
      TUFT_ASSIGN(subject, get_path(budget, item, arguments.positional[0]));
    }
    TUFT_ASSIGN(const bool holds, test ? test->apply(budget, subject, test_arguments) : Result<bool>(subject.truthy()));
    if (holds == kKeep) out.push_back(item);
  }
  return make_iterator(budget, std::move(out));
}

Result<Value> fallback(Budget&, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values,
              bind("default", arguments, {{"default_value", string_value("")}, {"boolean", Value(false)}}));
  const bool replace = input.is<Undefined>() || (values[1].truthy() && !input.truthy());
  return replace ? values[0] : input;
}

constexpr FilterEntry kSelectionFilters[] = {
    {"d", fallback},
    {"default", fallback},
    {"map", map},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
};

}  // namespace

std::span<const FilterEntry> selection_filters() {
  return kSelectionFilters;
}

}  // namespace tuft::chat
