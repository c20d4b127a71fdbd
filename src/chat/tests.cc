#include "chat/tests.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "chat/operators.h"

namespace tuft::chat {
namespace {

template <bool (*Check)(const Value&)>
Result<bool> check(Budget&, const Value& input, const CallArguments& arguments) {
  TUFT_TRY(bind("the test", arguments, {}));
  return Check(input);
}

template <ast::CompareOperator kOperator>
Result<bool> compare_with(Budget& budget, const Value& input, const CallArguments& arguments) {
  TUFT_ASSIGN(const Values values, bind("the test", arguments, {{"other"}}));
  return compare(budget, kOperator, input, values[0]);
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
using enum ast::CompareOperator;

constexpr TestEntry kTests[] = {
    {"!=", compare_with<kUnequal>},      {"<", compare_with<kLess>},
    {"<=", compare_with<kLessEqual>},    {"==", compare_with<kEqual>},
    {">", compare_with<kGreater>},       {">=", compare_with<kGreaterEqual>},
    {"boolean", check<is_boolean>},      {"defined", check<is_defined>},
    {"eq", compare_with<kEqual>},        {"equalto", compare_with<kEqual>},
    {"false", check<is_false>},          {"float", check<is_float>},
    {"ge", compare_with<kGreaterEqual>}, {"greaterthan", compare_with<kGreater>},
    {"gt", compare_with<kGreater>},      {"in", compare_with<kIn>},
    {"integer", check<is_integer>},      {"iterable", check<is_iterable>},
    {"le", compare_with<kLessEqual>},    {"lessthan", compare_with<kLess>},
    {"lt", compare_with<kLess>},         {"mapping", check<is_mapping>},
    {"ne", compare_with<kUnequal>},      {"none", check<is_none>},
    {"number", check<is_number>},        {"sequence", check<is_sequence>},
    {"string", check<is_string>},        {"true", check<is_true>},
    {"undefined", check<is_undefined>},
};

}  // namespace

const TestEntry* find_test(std::string_view name) {
  const auto* found = std::ranges::find(kTests, name, &TestEntry::name);
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace tuft::chat
