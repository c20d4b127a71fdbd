// What the operators, dots and brackets of a template do.
#pragma once

#include <string_view>

#include "base/result.h"
#include "chat/ast.h"
#include "chat/budget.h"
#include "chat/value.h"

namespace tuft::chat {

Result<Value> apply_binary(Budget& budget, ast::BinaryOperator op, const Value& left, const Value& right);
Result<Value> apply_unary(ast::UnaryOperator op, const Value& operand);
Result<bool> compare(Budget& budget, ast::CompareOperator op, const Value& left, const Value& right);
// item in container
Result<bool> contains(Budget& budget, const Value& container, const Value& item);

// object.name: methods before items. object[index]: items before methods. What is not there is undefined.
Result<Value> get_attribute(Budget& budget, const Value& object, std::string_view name);
Result<Value> get_item(Budget& budget, const Value& object, const Value& index);
// A path of filters: "a.b.0", an integer.
Result<Value> get_path(Budget& budget, const Value& object, const Value& path);
// object[start:stop:step]; None for what is not given.
Result<Value> get_slice(Budget& budget, const Value& object, const Value& start, const Value& stop, const Value& step);

}  // namespace tuft::chat
