#include "chat/operators.h"

#include <algorithm>
#include <limits>

#include "chat/methods.h"
#include "chat/unicode.h"

namespace tuft::chat {
namespace {

using enum ast::BinaryOperator;

Error overflow() {
  return unsupported_here("an integer beyond 64 bits");
}

Error wrong_operands(const Value& left, const Value& right) {
  for (const Value* side : {&left, &right}) {
    if (const auto* missing = side->as<Undefined>()) return template_error(*missing->why);
  }
  return template_error("unsupported operand types: '" + std::string(left.type_name()) + "' and '" +
                        std::string(right.type_name()) + "'");
}

Result<Value> integer_arithmetic(ast::BinaryOperator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case kAdd:
      return __builtin_add_overflow(a, b, &result) ? Result<Value>(overflow()) : Result<Value>(Value(result));
    case kSubtract:
      return __builtin_sub_overflow(a, b, &result) ? Result<Value>(overflow()) : Result<Value>(Value(result));
    case kMultiply:
      return __builtin_mul_overflow(a, b, &result) ? Result<Value>(overflow()) : Result<Value>(Value(result));
    case kDivide:
      if (b == 0) return template_error("division by zero");
      return Value(static_cast<double>(a) / static_cast<double>(b));
    case kFloorDivide:
    case kModulo:
      break;
  }
  if (b == 0) return template_error("integer division or modulo by zero");
  if (b == -1) return op == kModulo ? Value(int64_t{0}) : integer_arithmetic(kSubtract, 0, a);
  const int64_t remainder = a % b;
  const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
  if (op == kModulo) return Value(adjust ? remainder + b : remainder);
  return Value(a / b - (adjust ? 1 : 0));
}

Result<Value> float_arithmetic(ast::BinaryOperator op, double a, double b) {
  switch (op) {
    case kAdd:
      return Value(a + b);
    case kSubtract:
      return Value(a - b);
    case kMultiply:
      return Value(a * b);
    case kDivide:
      if (b == 0) return template_error("float division by zero");
      return Value(a / b);
    default:
      return unsupported_here("the operators // and % on floats");
  }
}

Result<Value> repeat(Budget& budget, const std::string& text, int64_t count) {
  const auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  if (text.empty() || times == 0) return make_string(budget, "");
  // Clamped so that the product does not overflow; the budget refuses it anyway.
  TUFT_TRY(budget.allocate(text.size() * std::min(times, size_t{1} << 40)));
  std::string out;
  out.reserve(text.size() * times);
  for (size_t i = 0; i < times; ++i) out += text;
  return string_value(std::move(out));
}

Result<Value> add_lists(Budget& budget, const Values& left, const Values& right) {
  TUFT_TRY(budget.step(left.size() + right.size()));
  Values out = left;
  out.insert(out.end(), right.begin(), right.end());
  return make_list(budget, std::move(out));
}

}  // namespace

Result<Value> apply_binary(Budget& budget, ast::BinaryOperator op, const Value& left, const Value& right) {
  const auto a = left.integer();
  const auto b = right.integer();
  if (a && b) return integer_arithmetic(op, *a, *b);
  if (left.number() && right.number()) return float_arithmetic(op, *left.number(), *right.number());
  if (op == kAdd && left.text() && right.text()) return make_string(budget, *left.text() + *right.text());
  if (op == kAdd && left.is<List>() && right.is<List>()) return add_lists(budget, *left.sequence(), *right.sequence());
  if (op == kMultiply && left.text() && b) return repeat(budget, *left.text(), *b);
  if (op == kMultiply && right.text() && a) return repeat(budget, *right.text(), *a);
  if (op == kModulo && left.text() != nullptr && !right.is<Undefined>()) {
    return unsupported_here("the operator % on strings");
  }
  return wrong_operands(left, right);
}

Result<Value> apply_unary(ast::UnaryOperator op, const Value& operand) {
  if (op == ast::UnaryOperator::kNot) return Value(!operand.truthy());
  if (const auto integer = operand.integer()) return integer_arithmetic(kSubtract, 0, *integer);
  if (const auto* number = operand.as<double>()) return Value(-*number);
  if (const auto* missing = operand.as<Undefined>()) return template_error(*missing->why);
  return template_error("bad operand type for unary -: '" + std::string(operand.type_name()) + "'");
}

Result<bool> compare(Budget& budget, ast::CompareOperator op, const Value& left, const Value& right) {
  using enum ast::CompareOperator;
  const auto negate = [](Result<bool> result) -> Result<bool> {
    TUFT_ASSIGN(const bool value, std::move(result));
    return !value;
  };
  switch (op) {
    case kEqual:
      return equals(budget, left, right);
    case kUnequal:
      return negate(equals(budget, left, right));
    case kLess:
      return less_than(budget, left, right);
    case kGreater:
      return less_than(budget, right, left);
    case kLessEqual:
      return negate(less_than(budget, right, left));
    case kGreaterEqual:
      return negate(less_than(budget, left, right));
    case kIn:
      return contains(budget, right, left);
    case kNotIn:
      return negate(contains(budget, right, left));
  }
  return false;
}

Result<bool> contains(Budget& budget, const Value& container, const Value& item) {
  if (const auto* text = container.text()) {
    if (item.text() == nullptr) {
      return template_error("'in <string>' requires string as left operand, not " + std::string(item.type_name()));
    }
    TUFT_TRY(budget.scan(text->size()));
    return item.text()->empty() || find_text(*text, *item.text(), 0) != std::string::npos;
  }
  if (const auto* dict = container.dict()) {
    if (item.is<List>() || item.dict() != nullptr) {
      return template_error("unhashable type: '" + std::string(item.type_name()) + "'");
    }
    return dict->find(item) != nullptr;
  }
  Values copied;
  const Values* items = container.sequence();
  if (items == nullptr) {
    TUFT_ASSIGN(copied, items_of(budget, container));
    items = &copied;
  }
  for (const Value& one : *items) {
    TUFT_ASSIGN(const bool same, equals(budget, one, item));
    if (same) return true;
  }
  return false;
}

namespace {

std::string described(const Value& object) {
  if (object.is<None>()) return "None";
  return std::string(object.type_name()) + " object";
}

Value no_attribute(const Value& object, std::string_view name) {
  return undefined("'" + described(object) + "' has no attribute '" + std::string(name) + "'");
}

Result<Value> loop_attribute(const std::shared_ptr<Loop>& loop, std::string_view name) {
  const auto index = static_cast<int64_t>(loop->index);
  if (name == "index0") return Value(index);
  if (name == "index") return Value(index + 1);
  if (name == "first") return Value(index == 0);
  if (name == "previtem") {
    return index == 0 ? Value(undefined("there is no previous item")) : loop->items[loop->index - 1];
  }
  if (name == "last" || name == "nextitem") {
    TUFT_ASSIGN(const bool more, loop->reaches(loop->index + 1));
    if (name == "last") return Value(!more);
    return more ? loop->items[loop->index + 1] : Value(undefined("there is no next item"));
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    TUFT_TRY(loop->reaches(std::numeric_limits<size_t>::max() - 1));
    const auto length = static_cast<int64_t>(loop->items.size());
    return Value(name == "length" ? length : length - index - (name == "revindex0" ? 1 : 0));
  }
  if (name == "cycle" || name == "changed" || name == "depth" || name == "depth0") {
    return unsupported_here("loop." + std::string(name));
  }
  return Value(undefined("'LoopContext object' has no attribute '" + std::string(name) + "'"));
}

// Returns an attribute that Python objects of this type have, or nothing.
Result<std::optional<Value>> own_attribute(Budget& budget, const Value& object, std::string_view name) {
  if (const auto* missing = object.as<Undefined>()) return template_error(*missing->why);
  if (const auto* space = object.as<Namespace*>()) {
    TUFT_TRY(budget.step((*space)->attributes.size()));
    const Value* found = (*space)->find(name);
    return found == nullptr ? std::optional<Value>() : std::optional<Value>(*found);
  }
  if (const auto* loop = object.as<std::shared_ptr<Loop>>()) {
    TUFT_ASSIGN(Value value, loop_attribute(*loop, name));
    return std::optional<Value>(std::move(value));
  }
  return find_method(object, name);
}

// Returns an item by its key or index, or nothing where Python raises LookupError or TypeError.
Result<std::optional<Value>> own_item(Budget& budget, const Value& object, const Value& index) {
  if (const auto* dict = object.dict()) {
    const Value* found = dict->find(index);
    return found == nullptr ? std::optional<Value>() : std::optional<Value>(*found);
  }
  if (object.is<Range>()) return unsupported_here("an index of a range");
  const auto place = index.integer();
  if (!place || (!object.text() && !object.sequence())) return std::optional<Value>();
  TUFT_ASSIGN(const int64_t length, length_of(budget, object));
  const int64_t at = *place < 0 ? *place + length : *place;
  if (at < 0 || at >= length) return std::optional<Value>();
  if (const auto* items = object.sequence()) return std::optional<Value>((*items)[static_cast<size_t>(at)]);
  const std::string& text = *object.text();
  const size_t start = byte_offset(text, static_cast<size_t>(at));
  TUFT_ASSIGN(Value character, make_string(budget, text.substr(start, code_point_at(text, start).bytes)));
  return std::optional<Value>(std::move(character));
}

}  // namespace

Result<Value> get_attribute(Budget& budget, const Value& object, std::string_view name) {
  TUFT_ASSIGN(auto attribute, own_attribute(budget, object, name));
  if (attribute) return std::move(*attribute);
  if (const auto* dict = object.dict()) {
    if (const Value* found = dict->find(name)) return *found;
  }
  return no_attribute(object, name);
}

Result<Value> get_item(Budget& budget, const Value& object, const Value& index) {
  if (const auto* missing = object.as<Undefined>()) return template_error(*missing->why);
  TUFT_ASSIGN(auto item, own_item(budget, object, index));
  if (item) return std::move(*item);
  if (const auto* name = index.text()) {
    TUFT_ASSIGN(auto attribute, own_attribute(budget, object, *name));
    if (attribute) return std::move(*attribute);
    return no_attribute(object, *name);
  }
  return Value(undefined(described(object) + " has no such element"));
}

Result<Value> get_path(Budget& budget, const Value& object, const Value& path) {
  const auto* text = path.text();
  if (text == nullptr) return get_item(budget, object, path);
  Value at = object;
  for (size_t start = 0; start <= text->size();) {
    const size_t dot = std::min(text->find('.', start), text->size());
    const std::string part = text->substr(start, dot - start);
    const bool is_number =
        !part.empty() && part.size() < 18 && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    TUFT_ASSIGN(at, get_item(budget, at, is_number ? Value(int64_t{std::stoll(part)}) : string_value(part)));
    start = dot + 1;
  }
  return at;
}

namespace {

struct Bounds {
  int64_t start;
  int64_t stop;
  int64_t step;
};

// Computes slice.indices of Python.
Result<Bounds> slice_bounds(int64_t length, const Value& start, const Value& stop, const Value& step) {
  for (const Value* part : {&start, &stop, &step}) {
    if (const auto* missing = part->as<Undefined>()) return template_error(*missing->why);
    if (!part->is<None>() && !part->integer()) return template_error("slice indices must be integers or None");
  }
  Bounds out{0, 0, step.integer().value_or(1)};
  if (out.step == 0) return template_error("slice step cannot be zero");
  // A longer step takes the same single item, and this one cannot overflow.
  out.step = std::clamp(out.step, -length - 1, length + 1);
  const bool backwards = out.step < 0;
  const int64_t lowest = backwards ? -1 : 0;
  const int64_t highest = backwards ? length - 1 : length;
  const auto place = [&](const Value& part, int64_t fallback) {
    if (!part.integer()) return fallback;
    const int64_t index = *part.integer();
    if (index >= 0) return std::min(index, highest);
    return index < -length ? lowest : std::max(index + length, lowest);
  };
  out.start = place(start, backwards ? highest : lowest);
  out.stop = place(stop, backwards ? lowest : highest);
  return out;
}

std::string slice_text(const std::string& text, const Bounds& bounds, int64_t count) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size(); at += code_point_at(text, at).bytes) starts.push_back(at);
  std::string out;
  for (int64_t i = 0; i < count; ++i) {
    const size_t start = starts[static_cast<size_t>(bounds.start + i * bounds.step)];
    out.append(text, start, code_point_at(text, start).bytes);
  }
  return out;
}

}  // namespace

Result<Value> get_slice(Budget& budget, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (const auto* missing = object.as<Undefined>()) return template_error(*missing->why);
  if (!object.text() && !object.sequence()) {
    return template_error("'" + std::string(object.type_name()) + "' object cannot be sliced");
  }
  TUFT_ASSIGN(const int64_t length, length_of(budget, object));
  TUFT_ASSIGN(const Bounds bounds, slice_bounds(length, start, stop, step));
  const int64_t count = Range{bounds.start, bounds.stop, bounds.step}.size();
  if (const auto* text = object.text()) {
    if (bounds.step == 1) {
      const size_t from = byte_offset(*text, static_cast<size_t>(bounds.start));
      const size_t bytes = byte_offset(std::string_view(*text).substr(from), static_cast<size_t>(count));
      return make_string(budget, text->substr(from, bytes));
    }
    TUFT_TRY(budget.allocate(text->size() * sizeof(size_t)));
    return make_string(budget, slice_text(*text, bounds, count));
  }
  Values out;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back((*object.sequence())[static_cast<size_t>(bounds.start + i * bounds.step)]);
  }
  return object.is<List>() ? make_list(budget, std::move(out)) : make_tuple(budget, std::move(out));
}

}  // namespace tuft::chat
