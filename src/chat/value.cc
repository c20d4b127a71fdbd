#include "chat/value.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "chat/unicode.h"

namespace tuft::chat {
namespace {

constexpr size_t kIndexedFrom = 9;  // entries; below, looking at all is quicker

int depth_of(const Values& items) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.depth());
  return deepest + 1;
}

Error too_deep() {
  return template_error("lists and dicts in each other more than " + std::to_string(kMaxValueDepth) + " deep");
}

Result<std::shared_ptr<const Sequence>> make_sequence(Budget& budget, Values items) {
  TUFT_TRY(budget.allocate(sizeof(Sequence) + items.size() * sizeof(Value)));
  const int depth = depth_of(items);
  if (depth > kMaxValueDepth) return too_deep();
  return std::make_shared<const Sequence>(Sequence{std::move(items), depth});
}

std::optional<int64_t> whole(double value) {
  constexpr double kLimit = 9223372036854775808.0;
  if (!(value >= -kLimit && value < kLimit) || std::trunc(value) != value) return std::nullopt;
  return static_cast<int64_t>(value);
}

}  // namespace

int64_t Range::size() const {
  if (step > 0 ? start >= stop : start <= stop) return 0;
  // In unsigned arithmetic, where the distance always fits.
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                     : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
  return static_cast<int64_t>(std::min<uint64_t>((distance - 1) / stride + 1, std::numeric_limits<int64_t>::max()));
}

Result<bool> Loop::reaches(size_t at) {
  while (items.size() <= at && accepts && next_unfiltered < unfiltered.size()) {
    const Value& candidate = unfiltered[next_unfiltered++];
    TUFT_ASSIGN(const bool accepted, accepts(candidate));
    if (accepted) items.push_back(candidate);
  }
  return at < items.size();
}

const Value* Namespace::find(std::string_view name) const {
  const auto found =
      std::ranges::find(attributes, name, [](const auto& entry) { return std::string_view(entry.first); });
  return found == attributes.end() ? nullptr : &found->second;
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [known, held] : attributes) {
    if (known == name) {
      held = std::move(value);
      return;
    }
  }
  attributes.emplace_back(std::string(name), std::move(value));
}

const Values* Value::sequence() const {
  if (const auto* list = as<List>()) return &list->sequence->items;
  if (const auto* tuple = as<Tuple>()) return &tuple->sequence->items;
  return nullptr;
}

std::optional<int64_t> Value::integer() const {
  if (const auto* flag = as<bool>()) return *flag ? 1 : 0;
  if (const auto* value = as<int64_t>()) return *value;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const auto* value = as<double>()) return *value;
  if (const auto value = integer()) return static_cast<double>(*value);
  return std::nullopt;
}

bool Value::truthy() const {
  if (is<Undefined>() || is<None>()) return false;
  if (const auto value = integer()) return *value != 0;
  if (const auto* value = as<double>()) return *value != 0;
  if (const auto* value = text()) return !value->empty();
  if (const auto* items = sequence()) return !items->empty();
  if (const auto* value = dict()) return !value->entries().empty();
  if (const auto* view = as<DictView>()) return !view->dict->entries().empty();
  if (const auto* range = as<Range>()) return range->size() != 0;
  return true;
}

std::string_view Value::type_name() const {
  static constexpr std::string_view kNames[] = {"Undefined", "NoneType",  "bool",      "int",         "float",
                                                "str",       "list",      "tuple",     "dict",        "",
                                                "range",     "generator", "Namespace", "LoopContext", ""};
  if (const auto* view = as<DictView>()) {
    return view->part == DictView::Part::kKeys     ? "dict_keys"
           : view->part == DictView::Part::kValues ? "dict_values"
                                                   : "dict_items";
  }
  if (const auto* callable = as<std::shared_ptr<const Callable>>()) {
    return (*callable)->kind == Callable::Kind::kMacro ? "Macro" : "builtin_function_or_method";
  }
  return kNames[state_.index()];
}

int Value::depth() const {
  if (const auto* list = as<List>()) return list->sequence->depth;
  if (const auto* tuple = as<Tuple>()) return tuple->sequence->depth;
  if (const auto* value = dict()) return value->depth();
  if (const auto* view = as<DictView>()) return view->dict->depth();
  if (const auto* iterator = as<std::shared_ptr<Iterator>>()) return (*iterator)->depth;
  if (const auto* loop = as<std::shared_ptr<Loop>>()) return (*loop)->depth;
  if (const auto* callable = as<std::shared_ptr<const Callable>>()) return 1 + (*callable)->receiver.depth();
  return 0;
}

Result<std::optional<size_t>> Dict::position(Budget& budget, const Value& key) const {
  TUFT_ASSIGN(const size_t hash, hash_value(key));
  if (entries_.size() < kIndexedFrom) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      TUFT_ASSIGN(const bool same, equals(budget, entries_[i].key, key));
      if (same) return std::optional<size_t>(i);
    }
    return std::optional<size_t>();
  }
  const auto [first, last] = index_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    TUFT_ASSIGN(const bool same, equals(budget, entries_[it->second].key, key));
    if (same) return std::optional<size_t>(it->second);
  }
  return std::optional<size_t>();
}

Status Dict::insert(Budget& budget, Value key, Value value) {
  TUFT_ASSIGN(const auto place, position(budget, key));
  depth_ = std::max({depth_, key.depth() + 1, value.depth() + 1});
  if (depth_ > kMaxValueDepth) return too_deep();
  if (place) {
    entries_[*place].value = std::move(value);
    return {};
  }
  TUFT_TRY(budget.allocate(sizeof(Entry)));
  entries_.push_back({std::move(key), std::move(value)});
  const size_t first_new = entries_.size() == kIndexedFrom ? 0 : entries_.size() - 1;
  for (size_t i = first_new; entries_.size() >= kIndexedFrom && i < entries_.size(); ++i) {
    TUFT_ASSIGN(const size_t hash, hash_value(entries_[i].key));
    index_.emplace(hash, i);
  }
  return {};
}

Result<const Value*> Dict::find(Budget& budget, const Value& key) const {
  TUFT_ASSIGN(const auto place, position(budget, key));
  return place ? &entries_[*place].value : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  const auto matches = [&](const Entry& entry) { return entry.key.text() != nullptr && *entry.key.text() == key; };
  if (entries_.size() < kIndexedFrom) {
    const auto found = std::ranges::find_if(entries_, matches);
    return found == entries_.end() ? nullptr : &found->value;
  }
  const auto [first, last] = index_.equal_range(std::hash<std::string_view>{}(key));
  for (auto it = first; it != last; ++it) {
    if (matches(entries_[it->second])) return &entries_[it->second].value;
  }
  return nullptr;
}

Error template_error(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "template_failed"};
}

Error unsupported_here(std::string message) {
  return {ErrorCode::kUnimplemented, std::move(message), "template_unsupported"};
}

Undefined undefined(std::string why) {
  return {std::make_shared<const std::string>(std::move(why))};
}

Value string_value(std::string text) {
  return Value(String(std::make_shared<const std::string>(std::move(text))));
}

Result<Value> make_string(Budget& budget, std::string text) {
  TUFT_TRY(budget.allocate(sizeof(std::string) + text.size()));
  return string_value(std::move(text));
}

Result<Value> make_list(Budget& budget, Values items) {
  TUFT_ASSIGN(auto sequence, make_sequence(budget, std::move(items)));
  return Value(List{std::move(sequence)});
}

Result<Value> make_tuple(Budget& budget, Values items) {
  TUFT_ASSIGN(auto sequence, make_sequence(budget, std::move(items)));
  return Value(Tuple{std::move(sequence)});
}

Result<Value> make_iterator(Budget& budget, Values items, std::optional<Error> failure) {
  TUFT_TRY(budget.allocate(sizeof(Iterator) + items.size() * sizeof(Value)));
  const int depth = depth_of(items);
  if (depth > kMaxValueDepth) return too_deep();
  return Value(std::make_shared<Iterator>(Iterator{std::move(items), 0, std::move(failure), depth}));
}

Result<Value> make_dict(Budget& budget, Dict dict) {
  TUFT_TRY(budget.allocate(sizeof(Dict)));
  return Value(DictRef(std::make_shared<const Dict>(std::move(dict))));
}

namespace {

Result<bool> equal_sequences(Budget& budget, const Values& left, const Values& right) {
  if (left.size() != right.size()) return false;
  for (size_t i = 0; i < left.size(); ++i) {
    TUFT_ASSIGN(const bool same, equals(budget, left[i], right[i]));
    if (!same) return false;
  }
  return true;
}

Result<bool> equal_dicts(Budget& budget, const Dict& left, const Dict& right) {
  if (left.entries().size() != right.entries().size()) return false;
  for (const auto& [key, value] : left.entries()) {
    TUFT_ASSIGN(const Value* other, right.find(budget, key));
    if (other == nullptr) return false;
    TUFT_ASSIGN(const bool same, equals(budget, value, *other));
    if (!same) return false;
  }
  return true;
}

// Exact between 64-bit integers and doubles.
std::partial_ordering compare_numbers(const Value& left, const Value& right) {
  const auto a = left.integer();
  const auto b = right.integer();
  if (a && b) return *a <=> *b;
  const auto wide = [](const Value& value, std::optional<int64_t> integer) {
    return integer ? static_cast<long double>(*integer) : static_cast<long double>(*value.as<double>());
  };
  return wide(left, a) <=> wide(right, b);
}

template <typename T>
bool same_object(const Value& left, const Value& right) {
  return left.is<T>() && right.is<T>() && *left.as<T>() == *right.as<T>();
}

}  // namespace

Result<bool> equals(Budget& budget, const Value& left, const Value& right) {
  TUFT_TRY(budget.step());
  if (left.number() && right.number()) return compare_numbers(left, right) == std::partial_ordering::equivalent;
  if (const auto *a = left.text(), *b = right.text(); a != nullptr && b != nullptr) {
    if (a->size() != b->size()) return false;
    TUFT_TRY(budget.scan(a->size()));
    return *a == *b;
  }
  if ((left.is<List>() && right.is<List>()) || (left.is<Tuple>() && right.is<Tuple>())) {
    return equal_sequences(budget, *left.sequence(), *right.sequence());
  }
  if (left.dict() != nullptr && right.dict() != nullptr) return equal_dicts(budget, *left.dict(), *right.dict());
  if (left.is<Undefined>() || left.is<None>()) return left.type_name() == right.type_name();
  if (left.is<Range>() && right.is<Range>()) {
    const Range &a = *left.as<Range>(), &b = *right.as<Range>();
    const int64_t size = a.size();
    return size == b.size() && (size == 0 || (a.start == b.start && (size == 1 || a.step == b.step)));
  }
  return same_object<Namespace*>(left, right) || same_object<std::shared_ptr<Iterator>>(left, right) ||
         same_object<std::shared_ptr<Loop>>(left, right) || same_object<std::shared_ptr<const Callable>>(left, right);
}

Result<size_t> hash_value(const Value& value) {
  if (const auto* text = value.text()) return std::hash<std::string_view>{}(*text);
  if (const auto integer = value.integer()) return std::hash<int64_t>{}(*integer);
  if (const auto* number = value.as<double>()) {
    const auto integer = whole(*number);
    return integer ? std::hash<int64_t>{}(*integer) : std::hash<double>{}(*number);
  }
  if (value.is<None>() || value.is<Undefined>()) return size_t{value.is<None>()};
  if (value.is<Tuple>()) {
    size_t hash = 0x345678;
    for (const Value& item : *value.sequence()) {
      TUFT_ASSIGN(const size_t part, hash_value(item));
      hash = std::rotl(hash, 13) * 0x9E3779B97F4A7C15U + part;
    }
    return hash;
  }
  return template_error("unhashable type: '" + std::string(value.type_name()) + "'");
}

namespace {

Result<bool> less_sequences(Budget& budget, const Values& left, const Values& right) {
  for (size_t i = 0; i < left.size() && i < right.size(); ++i) {
    TUFT_ASSIGN(const bool same, equals(budget, left[i], right[i]));
    if (!same) return less_than(budget, left[i], right[i]);
  }
  return left.size() < right.size();
}

}  // namespace

Result<bool> less_than(Budget& budget, const Value& left, const Value& right) {
  TUFT_TRY(budget.step());
  if (left.number() && right.number()) return compare_numbers(left, right) == std::partial_ordering::less;
  if (const auto *a = left.text(), *b = right.text(); a != nullptr && b != nullptr) {
    TUFT_TRY(budget.scan(std::min(a->size(), b->size())));
    return *a < *b;
  }
  if ((left.is<List>() && right.is<List>()) || (left.is<Tuple>() && right.is<Tuple>())) {
    return less_sequences(budget, *left.sequence(), *right.sequence());
  }
  for (const Value* side : {&left, &right}) {
    if (const auto* missing = side->as<Undefined>()) return template_error(*missing->why);
  }
  return template_error("'" + std::string(left.type_name()) + "' and '" + std::string(right.type_name()) +
                        "' have no order");
}

namespace {

Result<Values> characters_of(Budget& budget, const std::string& text) {
  TUFT_TRY(budget.allocate(count_code_points(text) * (sizeof(Value) + 2 * sizeof(std::string))));
  Values out;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = code_point_at(text, at).bytes;
    out.push_back(string_value(text.substr(at, bytes)));
    at += bytes;
  }
  return out;
}

Result<Values> rest_of(Budget& budget, Iterator& iterator) {
  Values out;
  while (true) {
    TUFT_TRY(budget.step());
    TUFT_ASSIGN(auto item, take_next(iterator));
    if (!item) return out;
    out.push_back(std::move(*item));
  }
}

}  // namespace

Value view_item(const DictView& view, size_t index) {
  const auto& [key, value] = view.dict->entries()[index];
  if (view.part == DictView::Part::kKeys) return key;
  if (view.part == DictView::Part::kValues) return value;
  const int depth = std::max(key.depth(), value.depth()) + 1;
  return Value(Tuple{std::make_shared<const Sequence>(Sequence{{key, value}, depth})});
}

Result<Values> items_of(Budget& budget, const Value& value) {
  if (const auto* text = value.text()) return characters_of(budget, *text);
  if (value.is<Undefined>()) return Values{};
  if (const auto* iterator = value.as<std::shared_ptr<Iterator>>()) return rest_of(budget, **iterator);
  if (!value.sequence() && !value.dict() && !value.is<DictView>() && !value.is<Range>()) {
    return template_error("'" + std::string(value.type_name()) + "' object is not iterable");
  }
  TUFT_ASSIGN(const int64_t length, length_of(budget, value));
  TUFT_TRY(budget.allocate(static_cast<size_t>(length) * sizeof(Value)));
  if (const auto* items = value.sequence()) return *items;
  Values out;
  if (const auto* dict = value.dict()) {
    for (const auto& entry : dict->entries()) out.push_back(entry.key);
  } else if (const auto* view = value.as<DictView>()) {
    TUFT_TRY(budget.allocate(static_cast<size_t>(length) * (sizeof(Sequence) + 2 * sizeof(Value))));
    for (size_t i = 0; i < static_cast<size_t>(length); ++i) out.push_back(view_item(*view, i));
  } else if (const auto* range = value.as<Range>()) {
    for (int64_t i = 0; i < length; ++i) out.emplace_back(range->start + i * range->step);
  }
  return out;
}

Result<std::optional<Value>> take_next(Iterator& iterator) {
  if (iterator.next < iterator.items.size()) return std::optional<Value>(iterator.items[iterator.next++]);
  if (iterator.failure) return *iterator.failure;
  return std::optional<Value>();
}

Result<int64_t> length_of(Budget& budget, const Value& value) {
  const auto size = [](size_t count) { return static_cast<int64_t>(count); };
  if (const auto* text = value.text()) {
    TUFT_TRY(budget.scan(text->size()));
    return size(count_code_points(*text));
  }
  if (const auto* items = value.sequence()) return size(items->size());
  if (const auto* dict = value.dict()) return size(dict->entries().size());
  if (const auto* view = value.as<DictView>()) return size(view->dict->entries().size());
  if (const auto* range = value.as<Range>()) return range->size();
  if (value.is<Undefined>()) return int64_t{0};
  return template_error("object of type '" + std::string(value.type_name()) + "' has no len()");
}

}  // namespace tuft::chat
