// The operators, attribute access and subscripts of template expressions.
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
// Returns `item in container`.
Result<bool> contains(Budget& budget, const Value& container, const Value& item);

// object.name looks for methods before items; object[index] looks for items before methods. Both return Undefined for
// what does not exist.
Result<Value> get_attribute(Budget& budget, const Value& object, std::string_view name);
Result<Value> get_item(Budget& budget, const Value& object, const Value& index);
// Follows the attribute argument of a filter: a path such as "a.b.0", or an integer.
Result<Value> get_path(Budget& budget, const Value& object, const Value& path);
// Returns object[start:stop:step]; None stands for a missing part.
Result<Value> get_slice(Budget& budget, const Value& object, const Value& start, const Value& stop, const Value& step);

}  // namespace tuft::chat
