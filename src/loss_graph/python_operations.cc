// Python's own part of a graph: indexing, attributes, sizes, and numbers that are known before the evaluation.
#include <array>
#include <cmath>
#include <limits>

#include "loss_graph/operation.h"

namespace tuft::loss_graph {
namespace {

Value lower_getitem(PlanBuilder& builder, const Call& call) {
  return get_item(builder, call.value(0), call.value(1));
}

Value sizes_of(const Shape& shape) {
  std::vector<Value> sizes;
  for (int dim = 0; dim < shape.rank; ++dim) sizes.push_back(Value::of_int(shape.extent(dim)));
  return Value::tuple(std::move(sizes));
}

// size(input, dim)
Value lower_size(PlanBuilder& builder, const Call& call) {
  const Shape shape = builder.shape(call.array(0));
  if (!call.has(1)) return sizes_of(shape);
  if (shape.rank == 0) builder.fail("a tensor without dimensions has no size");
  const int dim = builder.dimension(call.integer(1), shape.rank);
  return Value::of_int(shape.extent(dim));
}

Value lower_dim(PlanBuilder& builder, const Call& call) {
  return Value::of_int(builder.shape(call.array(0)).rank);
}

Value lower_numel(PlanBuilder& builder, const Call& call) {
  return Value::of_int(builder.shape(call.array(0)).count());
}

Value lower_getattr(PlanBuilder& builder, const Call& call) {
  const Value& object = call.value(0);
  const std::string& name = call.value(1).text;
  for (size_t i = 0; i < object.keys.size() && i < object.items.size(); ++i) {
    if (object.keys[i] == name) return object.items[i];
  }
  if (object.is(Value::Kind::kArray)) {
    const int a = call.array(0);
    if (name == "shape") return sizes_of(builder.shape(a));
    if (name == "ndim") return Value::of_int(builder.shape(a).rank);
    if (name == "dtype") return Value::of_dtype(builder.dtype(a));
    if (name == "device") return {.kind = Value::Kind::kDevice};
    if (name == "T" || name == "mT") return Value::array(transposed(builder, a));
  }
  builder.fail(
      "it reads an attribute that is not allowed; allowed are shape, ndim, dtype, device and T of a tensor, and "
      "values and indices of the result of max and min");
  return Value::none();
}

Value lower_len(PlanBuilder& builder, const Call& call) {
  const Value& object = call.value(0);
  if (object.is(Value::Kind::kList)) return Value::of_int(static_cast<int64_t>(object.items.size()));
  const Shape shape = builder.shape(call.array(0));
  if (shape.rank == 0) builder.fail("a tensor without dimensions has no length");
  return Value::of_int(shape.extent(0));
}

// math.x of a tensor is a Python number to torch: the result has no gradient.
Value lower_math(PlanBuilder& builder, const Call& call) {
  const std::string_view function = call.name() == "fabs" ? "abs" : call.name();
  int a = call.array(0);
  if (builder.shape(a).count() != 1)
    return Value::array(call.fail(0, "must have exactly one element; use torch's function"));
  a = builder.convert(builder.unary("detach", builder.reshape(a, Shape::scalar())), Dtype::kFloat);
  if (!call.value(0).is_number()) return Value::array(builder.unary(function, a));
  const double result = find_unary(function)->value(call.value(0).as_double());
  const bool rounds = function == "floor" || function == "ceil" || function == "trunc";
  if (!rounds) return Value::of_float(result);
  return std::fabs(result) < 9e15 ? Value::of_int(static_cast<int64_t>(result)) : Value::of_float(result);
}

Value lower_math_pow(PlanBuilder& builder, const Call& call) {
  const auto single = [&](size_t i) {
    const int a = call.array(i);
    if (builder.shape(a).count() != 1) return call.fail(i, "must have exactly one element; use torch.pow");
    return builder.convert(builder.unary("detach", builder.reshape(a, Shape::scalar())), Dtype::kFloat);
  };
  if (call.value(0).is_number() && call.value(1).is_number()) {
    return Value::of_float(std::pow(call.value(0).as_double(), call.value(1).as_double()));
  }
  const int base = single(0);
  return Value::array(builder.binary("pow", base, single(1)));
}

constexpr std::array kPythonOperations = std::to_array<Operation>({
    {"getitem", kOperator, "input index", lower_getitem},
    {"getattr", kBuiltin, "input name", lower_getattr},
    {"len", kBuiltin, "input", lower_len},
    {"size", kMethod, "input dim?", lower_size},
    {"dim", kMethod, "input", lower_dim},
    {"ndimension", kMethod, "input", lower_dim},
    {"numel", kTorch | kMethod, "input", lower_numel},
    {"nelement", kMethod, "input", lower_numel},
    {"exp", kMath, "x", lower_math},
    {"expm1", kMath, "x", lower_math},
    {"log", kMath, "x", lower_math},
    {"log2", kMath, "x", lower_math},
    {"log10", kMath, "x", lower_math},
    {"log1p", kMath, "x", lower_math},
    {"sqrt", kMath, "x", lower_math},
    {"tanh", kMath, "x", lower_math},
    {"sin", kMath, "x", lower_math},
    {"cos", kMath, "x", lower_math},
    {"floor", kMath, "x", lower_math},
    {"ceil", kMath, "x", lower_math},
    {"trunc", kMath, "x", lower_math},
    {"fabs", kMath, "x", lower_math},
    {"pow", kMath, "x y", lower_math_pow},
});

// ---- arithmetic of Python numbers

Value too_large(PlanBuilder& builder) {
  builder.fail("an integer is too large");
  return Value::of_int(0);
}

Value integer_power(PlanBuilder& builder, int64_t base, int64_t exponent) {
  if (exponent < 0) return Value::of_float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  if (base == 0 || base == 1) return Value::of_int(exponent == 0 ? 1 : base);
  if (base == -1) return Value::of_int(exponent % 2 == 0 ? 1 : -1);
  int64_t out = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(out, base, &out)) return too_large(builder);
  }
  return Value::of_int(out);
}

Value integer_binary(PlanBuilder& builder, std::string_view function, int64_t a, int64_t b) {
  int64_t out = 0;
  bool overflow = false;
  if (function == "add") {
    overflow = __builtin_add_overflow(a, b, &out);
  } else if (function == "sub") {
    overflow = __builtin_sub_overflow(a, b, &out);
  } else if (function == "mul") {
    overflow = __builtin_mul_overflow(a, b, &out);
  } else if (function == "pow") {
    return integer_power(builder, a, b);
  } else if (b == -1) {  // a // -1 and a % -1, without the overflow of the smallest a
    if (function == "remainder") return Value::of_int(0);
    overflow = __builtin_sub_overflow(int64_t{0}, a, &out);
  } else {
    const int64_t rest = a % b;
    const bool adjust = rest != 0 && (rest < 0) != (b < 0);
    out = function == "remainder" ? rest + (adjust ? b : 0) : a / b - (adjust ? 1 : 0);
  }
  return overflow ? too_large(builder) : Value::of_int(out);
}

bool is_arithmetic(std::string_view function) {
  return function == "add" || function == "sub" || function == "mul" || function == "pow" ||
         function == "floor_divide" || function == "remainder";
}

}  // namespace

Value python_binary(PlanBuilder& builder, std::string_view function, const Value& a, const Value& b) {
  const bool divides = function == "div" || function == "floor_divide" || function == "remainder";
  if (divides && b.as_double() == 0) {
    builder.fail("it divides by zero");
    return Value::of_float(0);
  }
  if (a.is_integer() && b.is_integer() && is_arithmetic(function)) {
    return integer_binary(builder, function, a.integer, b.integer);
  }
  if (function.starts_with("logical_") && !(a.is(Value::Kind::kBool) && b.is(Value::Kind::kBool))) {
    builder.fail("it takes bools or tensors of bools");
  }
  const BinaryFunction* found = find_binary(function);
  const double result = found->value(a.as_double(), b.as_double());
  return found->type == ResultType::kBool ? Value::of_bool(result != 0) : Value::of_float(result);
}

std::span<const Operation> python_operations() {
  return kPythonOperations;
}

}  // namespace tuft::loss_graph
