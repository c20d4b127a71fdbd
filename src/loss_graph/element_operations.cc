// Operations on each element by itself, arithmetic, comparisons and choices.
#include <array>
#include <cmath>
#include <limits>

#include "loss_graph/operation.h"

namespace tuft::loss_graph {
namespace {

// The function that an operation is called after, if its own name is another.
std::string_view function_of(std::string_view operation) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 22> kNames = {{{"absolute", "abs"},
                                                                                     {"negative", "neg"},
                                                                                     {"pos", "positive"},
                                                                                     {"log_sigmoid", "logsigmoid"},
                                                                                     {"expit", "sigmoid"},
                                                                                     {"invert", "logical_not"},
                                                                                     {"inv", "logical_not"},
                                                                                     {"bitwise_not", "logical_not"},
                                                                                     {"truediv", "div"},
                                                                                     {"divide", "div"},
                                                                                     {"true_divide", "div"},
                                                                                     {"multiply", "mul"},
                                                                                     {"subtract", "sub"},
                                                                                     {"floordiv", "floor_divide"},
                                                                                     {"mod", "remainder"},
                                                                                     {"and_", "logical_and"},
                                                                                     {"or_", "logical_or"},
                                                                                     {"xor", "logical_xor"},
                                                                                     {"bitwise_and", "logical_and"},
                                                                                     {"bitwise_or", "logical_or"},
                                                                                     {"bitwise_xor", "logical_xor"},
                                                                                     {"contiguous", "positive"}}};
  for (const auto& [name, function] : kNames) {
    if (name == operation) return function;
  }
  return operation;
}

bool is_subtraction(std::string_view function) {
  return function == "sub" || function == "neg";
}

bool needs_bools(std::string_view operation) {
  return operation == "and_" || operation == "or_" || operation == "xor" || operation == "invert" ||
         operation == "inv" || operation.starts_with("bitwise_");
}

bool are_bools(const PlanBuilder& builder, int a, int b) {
  return builder.dtype(a) == Dtype::kBool && builder.dtype(b) == Dtype::kBool;
}

int refuse_bools(PlanBuilder& builder) {
  return builder.fail("it cannot take two tensors of bools; convert them with .float()");
}

// torch has no such function of two tensors of bools.
bool lacks_bools(std::string_view function) {
  return function == "floor_divide" || function == "remainder" || function == "fmod" || function == "pow";
}

// Operators on Python numbers alone, such as x.shape[0] - 1, make Python numbers.
Value python_unary(PlanBuilder& builder, std::string_view function, const Value& a) {
  if (function == "neg") return python_binary(builder, "sub", Value::of_int(0), a);
  if (function == "positive") return a;
  if (function == "abs") {
    return a.as_double() < 0 ? python_binary(builder, "sub", Value::of_int(0), a) : a;
  }
  builder.fail("it cannot take a Python number");
  return a;
}

int element(PlanBuilder& builder, std::string_view operation, int a) {
  const std::string_view function = function_of(operation);
  if (needs_bools(operation) && builder.dtype(a) != Dtype::kBool) {
    return builder.fail("it takes a tensor of bools, such as a comparison makes");
  }
  if (is_subtraction(function) && builder.dtype(a) == Dtype::kBool) {
    return builder.fail("a tensor of bools has no negative; use logical_not, or convert it with .float()");
  }
  // torch computes it with integers.
  if (function == "square" && builder.dtype(a) == Dtype::kBool) a = builder.convert(a, Dtype::kInt);
  const bool rounds = function == "floor" || function == "ceil" || function == "trunc" || function == "round";
  if (rounds && builder.dtype(a) != Dtype::kFloat) return a;
  return builder.unary(function, a);
}

Value lower_element(PlanBuilder& builder, const Call& call) {
  if (call.value(0).is_number()) {
    const std::string_view function = function_of(call.name());
    const bool python = function == "neg" || function == "positive" || function == "abs";
    if (python) return python_unary(builder, function, call.value(0));
  }
  return Value::array(element(builder, call.name(), call.array(0)));
}

int pair(PlanBuilder& builder, std::string_view operation, int a, int b) {
  const std::string_view function = function_of(operation);
  const bool bools = builder.dtype(a) == Dtype::kBool || builder.dtype(b) == Dtype::kBool;
  if (needs_bools(operation) && (builder.dtype(a) != Dtype::kBool || builder.dtype(b) != Dtype::kBool)) {
    return builder.fail("it takes tensors of bools, such as comparisons make");
  }
  if (is_subtraction(function) && bools) {
    return builder.fail(
        "tensors of bools cannot be subtracted; use logical_not or logical_xor, or convert them with "
        ".float()");
  }
  if (are_bools(builder, a, b)) {
    if (lacks_bools(function)) return refuse_bools(builder);
    // The sum of two bools is a bool. Their product, maximum and minimum are bools anyway.
    if (function == "add") return builder.binary("logical_or", a, b);
  }
  return builder.binary(function, a, b);
}

Value lower_pair(PlanBuilder& builder, const Call& call) {
  if (call.value(0).is_number() && call.value(1).is_number()) {
    return python_binary(builder, function_of(call.name()), call.value(0), call.value(1));
  }
  return Value::array(pair(builder, call.name(), call.array(0), call.array(1)));
}

// add and sub of torch have a third argument.
Value lower_scaled(PlanBuilder& builder, const Call& call) {
  if (!call.has(2)) return lower_pair(builder, call);
  const int a = call.array(0);
  const int b = call.array(1);
  int scale = call.array(2);
  if (are_bools(builder, a, b)) {
    scale = builder.convert(scale, Dtype::kBool);  // else an alpha such as 2 would make the sum of bools an integer
  }
  return Value::array(pair(builder, call.name(), a, pair(builder, "mul", b, scale)));
}

Value lower_div(PlanBuilder& builder, const Call& call) {
  const Value& mode = call.value(2);
  if (!mode.is_given()) return lower_pair(builder, call);
  if (mode.text == "floor") return Value::array(pair(builder, "floor_divide", call.array(0), call.array(1)));
  if (mode.text != "trunc") call.fail(2, "must be 'floor' or 'trunc'");
  const int a = call.array(0);
  const int b = call.array(1);
  if (are_bools(builder, a, b)) return Value::array(refuse_bools(builder));
  const Dtype dtype = std::max(builder.dtype(a), builder.dtype(b));
  return Value::array(builder.unary("trunc", builder.binary("div", a, b), dtype));
}

Value lower_pow(PlanBuilder& builder, const Call& call) {
  if (call.value(0).is_number() && call.value(1).is_number()) return lower_pair(builder, call);
  const int a = call.array(0);
  if (builder.dtype(a) != Dtype::kFloat && call.value(1).is(Value::Kind::kInt) && call.value(1).integer < 0) {
    return Value::array(builder.fail("integers have no negative powers; convert them with .float()"));
  }
  return Value::array(pair(builder, "pow", a, call.array(1)));
}

Value lower_clamp(PlanBuilder& builder, const Call& call) {
  if (!call.has(1) && !call.has(2)) return Value::array(builder.fail("it needs min or max"));
  int out = call.array(0);
  if (call.has(1)) out = builder.binary("clamp_min", out, call.array(1));
  if (call.has(2)) out = builder.binary("clamp_max", out, call.array(2));
  return Value::array(out);
}

Value lower_clamp_side(PlanBuilder& builder, const Call& call) {
  return Value::array(builder.binary(call.name(), call.array(0), call.array(1)));
}

Value lower_where(PlanBuilder& builder, const Call& call) {
  if (!call.has(1) || !call.has(2)) {
    return Value::array(
        builder.fail("it needs the two values to choose from: the result of where(condition) alone has "
                     "a size that depends on values"));
  }
  const int condition = call.array(0);
  if (builder.dtype(condition) != Dtype::kBool) return Value::array(call.fail(0, "must be a tensor of bools"));
  return Value::array(builder.where(condition, call.array(1), call.array(2)));
}

// x.where(condition, other)
Value lower_where_method(PlanBuilder& builder, const Call& call) {
  const int condition = call.array(1);
  if (builder.dtype(condition) != Dtype::kBool) return Value::array(call.fail(1, "must be a tensor of bools"));
  return Value::array(builder.where(condition, call.array(0), call.array(2)));
}

Value lower_masked_fill(PlanBuilder& builder, const Call& call) {
  const int x = call.array(0);
  const int mask = call.array(1);
  if (builder.dtype(mask) != Dtype::kBool) return Value::array(call.fail(1, "must be a tensor of bools"));
  return Value::array(builder.where(mask, builder.convert(call.array(2), builder.dtype(x)), x));
}

Value lower_lerp(PlanBuilder& builder, const Call& call) {
  const int start = call.array(0);
  const int way = builder.binary("sub", call.array(1), start);
  return Value::array(builder.binary("add", start, builder.binary("mul", call.array(2), way)));
}

// log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold.
Value lower_softplus(PlanBuilder& builder, const Call& call) {
  const int x = call.array(0);
  const int beta = builder.fill(Shape::scalar(), call.number(1, 1.0), Dtype::kFloat);
  const int threshold = builder.fill(Shape::scalar(), call.number(2, 20.0), Dtype::kFloat);
  const int scaled = builder.binary("mul", x, beta);
  const int large = builder.binary("gt", scaled, threshold);
  // Chosen before the exponential too, so that no infinite branch meets a gradient of 0.
  const int zero = builder.fill(Shape::scalar(), 0.0, Dtype::kFloat);
  const int small = builder.where(large, zero, scaled);
  const int soft = builder.binary("div", builder.unary("log1p", builder.unary("exp", small)), beta);
  return Value::array(builder.where(large, x, soft));
}

Value lower_nan_to_num(PlanBuilder& builder, const Call& call) {
  constexpr double kMost = std::numeric_limits<float>::max();
  const int x = call.array(0);
  const auto constant = [&](size_t i, double fallback) {
    return builder.fill(Shape::scalar(), call.number(i, fallback), Dtype::kFloat);
  };
  const int infinity = builder.fill(Shape::scalar(), HUGE_VAL, Dtype::kFloat);
  const int minus_infinity = builder.fill(Shape::scalar(), -HUGE_VAL, Dtype::kFloat);
  int out = builder.where(builder.unary("isnan", x), constant(1, 0.0), x);
  out = builder.where(builder.binary("eq", x, infinity), constant(2, kMost), out);
  return Value::array(builder.where(builder.binary("eq", x, minus_infinity), constant(3, -kMost), out));
}

Value lower_isclose(PlanBuilder& builder, const Call& call) {
  const int a = call.array(0);
  const int b = call.array(1);
  const int rtol = builder.fill(Shape::scalar(), call.number(2, 1e-5), Dtype::kFloat);
  const int atol = builder.fill(Shape::scalar(), call.number(3, 1e-8), Dtype::kFloat);
  const int room = builder.binary("add", atol, builder.binary("mul", rtol, builder.unary("abs", b)));
  return Value::array(builder.binary("le", builder.unary("abs", builder.binary("sub", a, b)), room));
}

constexpr unsigned kEverywhere = kTorch | kMethod | kOperator;
constexpr auto kOne = "input";
constexpr auto kTwo = "input other";

constexpr std::array kElementOperations = std::to_array<Operation>({
    {"abs", kEverywhere, kOne, lower_element},
    {"absolute", kTensor, kOne, lower_element},
    {"neg", kEverywhere, kOne, lower_element},
    {"negative", kTensor, kOne, lower_element},
    {"pos", kOperator, kOne, lower_element},
    {"positive", kTensor, kOne, lower_element},
    {"exp", kTensor, kOne, lower_element},
    {"exp2", kTensor, kOne, lower_element},
    {"expm1", kTensor, kOne, lower_element},
    {"log", kTensor, kOne, lower_element},
    {"log2", kTensor, kOne, lower_element},
    {"log10", kTensor, kOne, lower_element},
    {"log1p", kTensor, kOne, lower_element},
    {"sqrt", kTensor, kOne, lower_element},
    {"rsqrt", kTensor, kOne, lower_element},
    {"square", kTensor, kOne, lower_element},
    {"reciprocal", kTensor, kOne, lower_element},
    {"sigmoid", kTensor, kOne, lower_element},
    {"expit", kTorch, kOne, lower_element},
    {"logsigmoid", kTorch, kOne, lower_element},
    {"log_sigmoid", kTorch, kOne, lower_element},
    {"tanh", kTensor, kOne, lower_element},
    {"sin", kTensor, kOne, lower_element},
    {"cos", kTensor, kOne, lower_element},
    {"erf", kTensor, kOne, lower_element},
    {"relu", kTensor, "input inplace=", lower_element},
    {"softplus", kTorch, "input beta? threshold?", lower_softplus},
    {"sign", kTensor, kOne, lower_element},
    {"floor", kTensor, kOne, lower_element},
    {"ceil", kTensor, kOne, lower_element},
    {"trunc", kTensor, kOne, lower_element},
    {"round", kTensor, kOne, lower_element},
    {"nan_to_num", kTensor, "input nan? posinf? neginf?", lower_nan_to_num},
    {"isnan", kTensor, kOne, lower_element},
    {"isinf", kTensor, kOne, lower_element},
    {"isfinite", kTensor, kOne, lower_element},
    {"isclose", kTensor, "input other rtol? atol?", lower_isclose},
    {"logical_not", kTensor, kOne, lower_element},
    {"bitwise_not", kTensor, kOne, lower_element},
    {"invert", kOperator, kOne, lower_element},
    {"inv", kOperator, kOne, lower_element},
    {"add", kEverywhere, "input other alpha?", lower_scaled},
    {"sub", kEverywhere, "input other alpha?", lower_scaled},
    {"subtract", kTensor, kTwo, lower_pair},
    {"mul", kEverywhere, kTwo, lower_pair},
    {"multiply", kTensor, kTwo, lower_pair},
    {"div", kTensor, "input other rounding_mode?", lower_div},
    {"divide", kTensor, "input other rounding_mode?", lower_div},
    {"true_divide", kTensor, kTwo, lower_pair},
    {"truediv", kOperator, kTwo, lower_pair},
    {"floor_divide", kTensor, kTwo, lower_pair},
    {"floordiv", kOperator, kTwo, lower_pair},
    {"remainder", kTensor, kTwo, lower_pair},
    {"mod", kOperator, kTwo, lower_pair},
    {"fmod", kTensor, kTwo, lower_pair},
    {"pow", kEverywhere, "input exponent", lower_pow},
    {"maximum", kTensor, kTwo, lower_pair},
    {"minimum", kTensor, kTwo, lower_pair},
    {"clamp", kTensor, "input min? max?", lower_clamp},
    {"clip", kTensor, "input min? max?", lower_clamp},
    {"clamp_min", kTensor, "input min", lower_clamp_side},
    {"clamp_max", kTensor, "input max", lower_clamp_side},
    {"logaddexp", kTensor, kTwo, lower_pair},
    {"lerp", kTensor, "input end weight", lower_lerp},
    {"eq", kEverywhere, kTwo, lower_pair},
    {"ne", kEverywhere, kTwo, lower_pair},
    {"lt", kEverywhere, kTwo, lower_pair},
    {"le", kEverywhere, kTwo, lower_pair},
    {"gt", kEverywhere, kTwo, lower_pair},
    {"ge", kEverywhere, kTwo, lower_pair},
    {"logical_and", kTensor, kTwo, lower_pair},
    {"logical_or", kTensor, kTwo, lower_pair},
    {"logical_xor", kTensor, kTwo, lower_pair},
    {"bitwise_and", kTensor, kTwo, lower_pair},
    {"bitwise_or", kTensor, kTwo, lower_pair},
    {"bitwise_xor", kTensor, kTwo, lower_pair},
    {"and_", kOperator, kTwo, lower_pair},
    {"or_", kOperator, kTwo, lower_pair},
    {"xor", kOperator, kTwo, lower_pair},
    {"where", kTorch, "condition input? other?", lower_where},
    {"where", kMethod, "input condition other", lower_where_method},
    {"masked_fill", kTensor, "input mask value", lower_masked_fill},
});

}  // namespace

std::span<const Operation> element_operations() {
  return kElementOperations;
}

}  // namespace tuft::loss_graph
