#include "chat/value.h"

#include <algorithm>

#include "chat/unicode.h"

namespace tuft::chat {
namespace {

int depth_of(const Values& items) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.depth());
  return deepest + 1;
}

Error too_deep() {
  return template_error("lists and dicts are nested more than " + std::to_string(kMaxValueDepth) + " deep");
}

Result<std::shared_ptr<const Sequence>> make_sequence(Budget& budget, Values items) {
  TUFT_TRY(budget.allocate(sizeof(Sequence) + items.size() * sizeof(Value)));
  const int depth = depth_of(items);
  if (depth > kMaxValueDepth) return too_deep();
  return std::make_shared<const Sequence>(Sequence{std::move(items), depth});
}

}  // namespace

int64_t Range::size() const {
  if (step > 0 ? start >= stop : start <= stop) return 0;
  return step > 0 ? (stop - start - 1) / step + 1 : (start - stop - 1) / -step + 1;
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

Status Dict::insert(Budget& budget, Value key, Value value) {
  const std::string* text = key.text();
  const auto* integer = key.as<int64_t>();
  if (text == nullptr && integer == nullptr)
    return unsupported_here("a dict key of type " + std::string(key.type_name()));
  depth_ = std::max(depth_, value.depth() + 1);
  if (depth_ > kMaxValueDepth) return too_deep();
  size_t position = entries_.size();
  position = text ? strings_.try_emplace(*text, position).first->second
                  : integers_.try_emplace(*integer, position).first->second;
  if (position < entries_.size()) {
    entries_[position].value = std::move(value);
    return {};
  }
  TUFT_TRY(budget.allocate(sizeof(Entry)));
  entries_.push_back({std::move(key), std::move(value)});
  return {};
}

const Value* Dict::find(const Value& key) const {
  if (const auto* text = key.text()) return find(std::string_view(*text));
  if (!key.integer()) return nullptr;
  const auto found = integers_.find(*key.integer());
  return found == integers_.end() ? nullptr : &entries_[found->second].value;
}

const Value* Dict::find(std::string_view key) const {
  const auto found = strings_.find(key);
  return found == strings_.end() ? nullptr : &entries_[found->second].value;
}

Error template_error(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), "template_failed"};
}

Error unsupported_here(std::string what) {
  return {ErrorCode::kUnimplemented, std::move(what), "template_unsupported"};
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

Result<Value> make_iterator(Budget& budget, Values items) {
  TUFT_TRY(budget.allocate(sizeof(Iterator) + items.size() * sizeof(Value)));
  const int depth = depth_of(items);
  if (depth > kMaxValueDepth) return too_deep();
  return Value(std::make_shared<Iterator>(Iterator{std::move(items), 0, depth}));
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
    const Value* other = right.find(key);
    if (other == nullptr) return false;
    TUFT_ASSIGN(const bool same, equals(budget, value, *other));
    if (!same) return false;
  }
  return true;
}

// Compares 64-bit integers and doubles exactly.
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
  if (left.is<Range>() || left.is<DictView>()) return unsupported_here("comparing a " + std::string(left.type_name()));
  return same_object<Namespace*>(left, right) || same_object<std::shared_ptr<Iterator>>(left, right) ||
         same_object<std::shared_ptr<Loop>>(left, right) || same_object<std::shared_ptr<const Callable>>(left, right);
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

Value view_item(const DictView& view, const Dict::Entry& entry) {
  if (view.part == DictView::Part::kKeys) return entry.key;
  if (view.part == DictView::Part::kValues) return entry.value;
  return Value(Tuple{std::make_shared<const Sequence>(Sequence{{entry.key, entry.value}, entry.value.depth() + 1})});
}

}  // namespace

Result<Values> items_of(Budget& budget, const Value& value) {
  if (const auto* text = value.text()) return characters_of(budget, *text);
  if (value.is<Undefined>()) return Values{};
  if (const auto* iterator = value.as<std::shared_ptr<Iterator>>()) {
    const Values& all = (*iterator)->items;
    const size_t first = std::exchange((*iterator)->next, all.size());
    TUFT_TRY(budget.step(all.size() - first + 1));
    return Values(all.begin() + static_cast<std::ptrdiff_t>(first), all.end());
  }
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
    for (const auto& entry : view->dict->entries()) out.push_back(view_item(*view, entry));
  } else if (const auto* range = value.as<Range>()) {
    for (int64_t i = 0; i < length; ++i) out.emplace_back(range->start + i * range->step);
  }
  return out;
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
