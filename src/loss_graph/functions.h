// The functions that work on each element by itself, with their derivatives. Internal to the module.
//
// Where a function has no derivative, the choice is torch's: 0 for abs, sign and relu at 0; half for each side of a tie
// of minimum and maximum; all for a value on a bound of clamp.
#pragma once

#include <cstdint>
#include <string_view>

namespace tuft::loss_graph {

enum class ResultType : uint8_t {
  kSame,   // that of the operand; of two operands the wider one
  kFloat,  // float, also of integers
  kBool,   // bool
};

struct UnaryFunction {
  std::string_view name;
  ResultType type;
  int cost;  // of an element with its slope, for the operands that take longest; that of add is 1
  double (*value)(double x);
  double (*slope)(double x, double y);  // dy/dx; null: the result does not depend on x for a gradient
};

struct BinaryFunction {
  std::string_view name;
  ResultType type;
  int cost;  // as above
  double (*value)(double a, double b);
  // dy/da and dy/db; null as above.
  double (*slope_a)(double a, double b, double y);
  double (*slope_b)(double a, double b, double y);
};

// Return null for an unknown name.
const UnaryFunction* find_unary(std::string_view name);
const BinaryFunction* find_binary(std::string_view name);

}  // namespace tuft::loss_graph
