// Filters of lists, dicts and other values that have items.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "chat/filters.h"
#include "chat/operators.h"
#include "chat/unicode.h"

namespace tuft::chat {
namespace {

Result<Value> length(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_TRY(bind("length", arguments, {}));
  TUFT_ASSIGN(const int64_t length, length_of(budget, input));
  return Value(length);
}

Result<Value> list(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_TRY(bind("list", arguments, {}));
  TUFT_ASSIGN(Values items, items_of(budget, input));
  return make_list(budget, std::move(items));
}

Result<Value> first(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_TRY(bind("first", arguments, {}));
  Value nothing = undefined("No first item, sequence was empty.");
  if (const auto* iterator = input.as<std::shared_ptr<Iterator>>()) {
    Iterator& walk = **iterator;
    return walk.next < walk.items.size() ? walk.items[walk.next++] : nothing;
  }
  if (input.text() != nullptr && !input.text()->empty()) return get_item(budget, input, Value(int64_t{0}));
  TUFT_ASSIGN(const Values items, items_of(budget, input));
  return items.empty() ? nothing : items.front();
}

Result<Value> last(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_TRY(bind("last", arguments, {}));
  if (input.is<std::shared_ptr<Iterator>>()) return template_error("a generator has no last item; make it a list");
  if (input.text() != nullptr && !input.text()->empty()) return get_item(budget, input, Value(int64_t{-1}));
  TUFT_ASSIGN(const Values items, items_of(budget, input));
  return items.empty() ? Value(undefined("No last item, sequence was empty.")) : items.back();
}

Result<Value> reverse(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_TRY(bind("reverse", arguments, {}));
  if (input.text() != nullptr) return get_slice(budget, input, kNotGiven, kNotGiven, Value(int64_t{-1}));
  TUFT_ASSIGN(Values items, items_of(budget, input));
  std::ranges::reverse(items);
  if (input.is<std::shared_ptr<Iterator>>()) return make_list(budget, std::move(items));
  return make_iterator(budget, std::move(items));
}

struct Keyed {
  Value key;
  Value item;
};

// Returns what an item is ordered by: itself or its attribute, in lower case if case does not count.
Result<Value> key_of(Budget& budget, const Value& item, const Value& attribute, bool case_sensitive) {
  Value key = item;
  if (!attribute.is<None>()) {
    TUFT_ASSIGN(key, get_path(budget, item, attribute));
  }
  if (case_sensitive || key.text() == nullptr) return key;
  return make_string(budget, to_lower(*key.text()));
}

Result<Value> sorted(Budget& budget, std::vector<Keyed> items, bool reverse) {
  Status failed;
  std::ranges::stable_sort(items, [&](const Keyed& a, const Keyed& b) {
    if (!failed.ok()) return false;
    auto less = reverse ? less_than(budget, b.key, a.key) : less_than(budget, a.key, b.key);
    if (!less.ok()) failed = less.error();
    return less.ok() && *less;
  });
  TUFT_TRY(failed);
  Values out;
  for (Keyed& one : items) out.push_back(std::move(one.item));
  return make_list(budget, std::move(out));
}

Result<Value> sort(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(
      const Values values,
      bind("sort", arguments, {{"reverse", Value(false)}, {"case_sensitive", Value(false)}, {"attribute", kNotGiven}}));
  if (values[2].text() != nullptr && values[2].text()->find(',') != std::string::npos) {
    return unsupported_here("sort by several attributes");
  }
  TUFT_ASSIGN(const Values items, items_of(budget, input));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    TUFT_ASSIGN(Value key, key_of(budget, item, values[2], values[1].truthy()));
    // In a list, as in Jinja: equal keys need no order, so a missing attribute does not fail if all items miss it.
    TUFT_ASSIGN(key, make_list(budget, {std::move(key)}));
    keyed.push_back({std::move(key), item});
  }
  return sorted(budget, std::move(keyed), values[0].truthy());
}

Result<Value> dictsort(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_TRY(bind("dictsort", arguments, {}));
  if (const auto* missing = input.as<Undefined>()) return template_error(*missing->why);
  if (input.dict() == nullptr) return template_error("dictsort of a " + std::string(input.type_name()));
  std::vector<Keyed> keyed;
  for (const auto& [name, value] : input.dict()->entries()) {
    TUFT_ASSIGN(Value key, key_of(budget, name, kNotGiven, false));
    TUFT_ASSIGN(Value item, make_tuple(budget, {name, value}));
    keyed.push_back({std::move(key), std::move(item)});
  }
  return sorted(budget, std::move(keyed), false);
}

Result<Value> unique(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values,
              bind("unique", arguments, {{"case_sensitive", Value(false)}, {"attribute", kNotGiven}}));
  TUFT_ASSIGN(const Values items, items_of(budget, input));
  Values seen;
  Values out;
  for (const Value& item : items) {
    TUFT_ASSIGN(Value key, key_of(budget, item, values[1], values[0].truthy()));
    bool is_new = true;
    for (size_t i = 0; is_new && i < seen.size(); ++i) {
      TUFT_ASSIGN(const bool same, equals(budget, seen[i], key));
      is_new = !same;
    }
    if (!is_new) continue;
    seen.push_back(std::move(key));
    out.push_back(item);
  }
  return make_iterator(budget, std::move(out));
}

Result<Value> items(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_TRY(bind("items", arguments, {}));
  if (input.is<Undefined>()) return make_iterator(budget, {});
  if (input.dict() == nullptr) return template_error("Can only get item pairs from a mapping.");
  TUFT_ASSIGN(Values pairs, items_of(budget, Value(DictView{*input.as<DictRef>(), DictView::Part::kItems})));
  return make_iterator(budget, std::move(pairs));
}

constexpr FilterEntry kSequenceFilters[] = {
    {"count", length},  {"dictsort", dictsort}, {"first", first},     {"items", items}, {"last", last},
    {"length", length}, {"list", list},         {"reverse", reverse}, {"sort", sort},   {"unique", unique},
};

}  // namespace

std::span<const FilterEntry> sequence_filters() {
  return kSequenceFilters;
}

}  // namespace tuft::chat
