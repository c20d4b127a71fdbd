// Filters of lists, dicts and what else has items.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "chat/filters.h"
#include "chat/operators.h"
#include "chat/unicode.h"

namespace tuft::chat {
namespace {

const Value kNone = None{};

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
    TUFT_ASSIGN(auto item, take_next(**iterator));
    if (!item) return nothing;
    return std::move(*item);
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
  if (input.text() != nullptr) return get_slice(budget, input, kNone, kNone, Value(int64_t{-1}));
  TUFT_ASSIGN(Values items, items_of(budget, input));
  std::ranges::reverse(items);
  if (input.is<std::shared_ptr<Iterator>>()) return make_list(budget, std::move(items));
  return make_iterator(budget, std::move(items));
}

// What items are ordered by.
struct Keyed {
  Value key;
  Value item;
};

Result<Value> folded(Budget& budget, Value key, bool case_sensitive) {
  if (case_sensitive || key.text() == nullptr) return key;
  return make_string(budget, to_lower(*key.text()));
}

Status sort_by_key(Budget& budget, std::vector<Keyed>& items, bool reverse) {
  Status failed;
  std::ranges::stable_sort(items, [&](const Keyed& a, const Keyed& b) {
    if (!failed.ok()) return false;
    auto less = reverse ? less_than(budget, b.key, a.key) : less_than(budget, a.key, b.key);
    if (!less.ok()) failed = less.error();
    return less.ok() && *less;
  });
  return failed;
}

// "a.b,c": several keys, the first one decides.
Result<Value> sort_key(Budget& budget, const Value& item, const Value& attribute, bool case_sensitive) {
  Values keys;
  const auto* paths = attribute.text();
  for (size_t start = 0; start == 0 || (paths != nullptr && start <= paths->size());) {
    Value key = item;
    const size_t comma = paths == nullptr ? 0 : std::min(paths->find(',', start), paths->size());
    if (paths != nullptr) {
      TUFT_ASSIGN(key, get_path(budget, item, string_value(paths->substr(start, comma - start))));
    } else if (!attribute.is<None>()) {
      TUFT_ASSIGN(key, get_path(budget, item, attribute));
    }
    TUFT_ASSIGN(key, folded(budget, std::move(key), case_sensitive));
    keys.push_back(std::move(key));
    start = comma + 1;
  }
  return make_list(budget, std::move(keys));
}

Result<Value> sort(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(
      const Values values,
      bind("sort", arguments, {{"reverse", Value(false)}, {"case_sensitive", Value(false)}, {"attribute", kNone}}));
  TUFT_ASSIGN(const Values items, items_of(budget, input));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    TUFT_ASSIGN(Value key, sort_key(budget, item, values[2], values[1].truthy()));
    keyed.push_back({std::move(key), item});
  }
  TUFT_TRY(sort_by_key(budget, keyed, values[0].truthy()));
  Values out;
  for (Keyed& one : keyed) out.push_back(std::move(one.item));
  return make_list(budget, std::move(out));
}

Result<Value> dictsort(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values,
              bind("dictsort", arguments,
                   {{"case_sensitive", Value(false)}, {"by", string_value("key")}, {"reverse", Value(false)}}));
  TUFT_ASSIGN(const auto by, text_argument(values[1], "dictsort: by"));
  if (by != "key" && by != "value") return template_error("You can only sort by either \"key\" or \"value\"");
  if (const auto* missing = input.as<Undefined>()) return template_error(*missing->why);
  if (input.dict() == nullptr) return template_error("dictsort of a " + std::string(input.type_name()));
  std::vector<Keyed> keyed;
  for (const auto& [name, value] : input.dict()->entries()) {
    TUFT_ASSIGN(Value key, folded(budget, by == "key" ? name : value, values[0].truthy()));
    TUFT_ASSIGN(Value item, make_tuple(budget, {name, value}));
    keyed.push_back({std::move(key), std::move(item)});
  }
  TUFT_TRY(sort_by_key(budget, keyed, values[2].truthy()));
  Values out;
  for (Keyed& one : keyed) out.push_back(std::move(one.item));
  return make_list(budget, std::move(out));
}

Result<Value> unique(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values, bind("unique", arguments, {{"case_sensitive", Value(false)}, {"attribute", kNone}}));
  TUFT_ASSIGN(const Values items, items_of(budget, input));
  Dict seen;
  Values out;
  for (const Value& item : items) {
    Value key = item;
    if (!values[1].is<None>()) {
      TUFT_ASSIGN(key, get_path(budget, item, values[1]));
    }
    TUFT_ASSIGN(key, folded(budget, std::move(key), values[0].truthy()));
    auto found = seen.find(budget, key);
    if (!found.ok()) return make_iterator(budget, std::move(out), found.error());
    if (*found != nullptr) continue;
    TUFT_TRY(seen.insert(budget, std::move(key), Value(true)));
    out.push_back(item);
  }
  return make_iterator(budget, std::move(out));
}

template <bool kLargest>
Result<Value> extreme(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values,
              bind(kLargest ? "max" : "min", arguments, {{"case_sensitive", Value(false)}, {"attribute", kNone}}));
  TUFT_ASSIGN(const Values items, items_of(budget, input));
  std::optional<Keyed> best;
  for (const Value& item : items) {
    Value key = item;
    if (!values[1].is<None>()) {
      TUFT_ASSIGN(key, get_path(budget, item, values[1]));
    }
    TUFT_ASSIGN(key, folded(budget, std::move(key), values[0].truthy()));
    if (best) {
      TUFT_ASSIGN(const bool better, kLargest ? less_than(budget, best->key, key) : less_than(budget, key, best->key));
      if (!better) continue;
    }
    best = Keyed{std::move(key), item};
  }
  return best ? best->item : Value(undefined("No aggregated item, sequence was empty."));
}

Result<Value> sum(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values, bind("sum", arguments, {{"attribute", kNone}, {"start", Value(int64_t{0})}}));
  if (values[1].text() != nullptr) return template_error("sum() can't sum strings; use join");
  TUFT_ASSIGN(const Values items, items_of(budget, input));
  Value total = values[1];
  for (Value item : items) {
    if (!values[0].is<None>()) {
      TUFT_ASSIGN(item, get_path(budget, item, values[0]));
    }
    TUFT_ASSIGN(total, apply_binary(budget, ast::BinaryOperator::kAdd, total, item));
  }
  return total;
}

Result<Value> items(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_TRY(bind("items", arguments, {}));
  if (input.is<Undefined>()) return make_iterator(budget, {});
  if (input.dict() == nullptr) {
    return make_iterator(budget, {}, template_error("Can only get item pairs from a mapping."));
  }
  TUFT_ASSIGN(Values pairs, items_of(budget, Value(DictView{*input.as<DictRef>(), DictView::Part::kItems})));
  return make_iterator(budget, std::move(pairs));
}

constexpr int64_t kMaxRow = 1'000'000;

Result<Value> batch(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values, bind("batch", arguments, {{"linecount"}, {"fill_with", kNone}}));
  TUFT_ASSIGN(const int64_t size, integer_argument(values[0], "batch: linecount"));
  TUFT_ASSIGN(const Values all, items_of(budget, input));
  if (size < 1 || size > kMaxRow) return unsupported_here("batch with such a linecount");
  Values rows;
  const auto width = static_cast<size_t>(size);
  for (size_t from = 0; from < all.size(); from += width) {
    const size_t to = std::min(from + width, all.size());
    Values row(all.begin() + static_cast<std::ptrdiff_t>(from), all.begin() + static_cast<std::ptrdiff_t>(to));
    if (row.size() < width && !values[1].is<None>()) {
      TUFT_TRY(budget.allocate((width - row.size()) * sizeof(Value)));
      row.resize(width, values[1]);
    }
    TUFT_ASSIGN(Value made, make_list(budget, std::move(row)));
    rows.push_back(std::move(made));
  }
  return make_iterator(budget, std::move(rows));
}

constexpr FilterEntry kFilters[] = {
    {"batch", batch},     {"count", length},  {"dictsort", dictsort}, {"first", first},       {"items", items},
    {"last", last},       {"length", length}, {"list", list},         {"max", extreme<true>}, {"min", extreme<false>},
    {"reverse", reverse}, {"sort", sort},     {"sum", sum},           {"unique", unique},
};

}  // namespace

std::span<const FilterEntry> sequence_filters() {
  return kFilters;
}

}  // namespace tuft::chat
