#include "chat/tests.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "chat/operators.h"
#include "chat/text.h"
#include "chat/unicode.h"

namespace tuft::chat {
namespace {

template <bool (*Check)(const Value&)>
Result<bool> check(Budget&, const Value& input, const CallArguments& arguments) {
  TUFT_TRY(bind("the test", arguments, {}));
  return Check(input);
}

template <bool (*Check)(std::string_view)>
Result<bool> check_text(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_TRY(bind("the test", arguments, {}));
  TUFT_ASSIGN(const std::string text, to_text(budget, input));
  return Check(text);
}

template <ast::CompareOperator kOperator>
Result<bool> compare_with(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values, bind("the test", arguments, {{"other"}}));
  return compare(budget, kOperator, input, values[0]);
}

Result<bool> has_remainder(Budget& budget, const Value& input, const Value& divisor, int64_t wanted) {
  TUFT_ASSIGN(const Value remainder, apply_binary(budget, ast::BinaryOperator::kModulo, input, divisor));
  return equals(budget, remainder, Value(wanted));
}

template <int kWanted>
Result<bool> parity(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_TRY(bind("the test", arguments, {}));
  return has_remainder(budget, input, Value(int64_t{2}), kWanted);
}

Result<bool> divisible(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values, bind("divisibleby", arguments, {{"num"}}));
  return has_remainder(budget, input, values[0], 0);
}

// Python's `is`, where it does not depend on what the interpreter shares.
Result<bool> same(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values, bind("sameas", arguments, {{"other"}}));
  const Value& other = values[0];
  if (const auto *a = input.sequence(), *b = other.sequence(); a || b) return a == b;
  if (const auto *a = input.dict(), *b = other.dict(); a || b) return a == b;
  return input.type_name() == other.type_name() ? equals(budget, input, other) : Result<bool>(false);
}

bool is_defined(const Value& value) {
  return !value.is<Undefined>();
}
bool is_undefined(const Value& value) {
  return value.is<Undefined>();
}
bool is_none(const Value& value) {
  return value.is<None>();
}
bool is_boolean(const Value& value) {
  return value.is<bool>();
}
bool is_true(const Value& value) {
  return value.is<bool>() && value.truthy();
}
bool is_false(const Value& value) {
  return value.is<bool>() && !value.truthy();
}
bool is_integer(const Value& value) {
  return value.is<int64_t>();
}
bool is_float(const Value& value) {
  return value.is<double>();
}
bool is_number(const Value& value) {
  return value.number().has_value();
}
bool is_string(const Value& value) {
  return value.text() != nullptr;
}
bool is_mapping(const Value& value) {
  return value.dict() != nullptr;
}
bool is_sequence(const Value& value) {
  return value.text() || value.sequence() || value.dict() || value.is<Range>() || value.is<Undefined>();
}
bool is_iterable(const Value& value) {
  return is_sequence(value) || value.is<DictView>() || value.is<std::shared_ptr<Iterator>>() ||
         value.is<std::shared_ptr<Loop>>();
}
bool is_callable(const Value& value) {
  return value.is<std::shared_ptr<const Callable>>() || value.is<std::shared_ptr<Loop>>() || value.is<Undefined>();
}

using enum ast::CompareOperator;

constexpr TestEntry kTests[] = {
    {"!=", compare_with<kUnequal>},
    {"<", compare_with<kLess>},
    {"<=", compare_with<kLessEqual>},
    {"==", compare_with<kEqual>},
    {">", compare_with<kGreater>},
    {">=", compare_with<kGreaterEqual>},
    {"boolean", check<is_boolean>},
    {"callable", check<is_callable>},
    {"defined", check<is_defined>},
    {"divisibleby", divisible},
    {"eq", compare_with<kEqual>},
    {"equalto", compare_with<kEqual>},
    {"even", parity<0>},
    {"false", check<is_false>},
    {"float", check<is_float>},
    {"ge", compare_with<kGreaterEqual>},
    {"greaterthan", compare_with<kGreater>},
    {"gt", compare_with<kGreater>},
    {"in", compare_with<kIn>},
    {"integer", check<is_integer>},
    {"iterable", check<is_iterable>},
    {"le", compare_with<kLessEqual>},
    {"lessthan", compare_with<kLess>},
    {"lower", check_text<is_lower>},
    {"lt", compare_with<kLess>},
    {"mapping", check<is_mapping>},
    {"ne", compare_with<kUnequal>},
    {"none", check<is_none>},
    {"number", check<is_number>},
    {"odd", parity<1>},
    {"sameas", same},
    {"sequence", check<is_sequence>},
    {"string", check<is_string>},
    {"true", check<is_true>},
    {"undefined", check<is_undefined>},
    {"upper", check_text<is_upper>},
};

}  // namespace

const TestEntry* find_test(std::string_view name) {
  const auto* found = std::ranges::find(kTests, name, &TestEntry::name);
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace tuft::chat
