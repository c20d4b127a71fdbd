// New arrays, and conversions.
#include <array>
#include <cmath>

#include "loss_graph/operation.h"

namespace tuft::loss_graph {
namespace {

double filling_of(std::string_view name) {
  return name.starts_with("ones") || name.starts_with("new_ones") ? 1.0 : 0.0;
}

// zeros(shape, dtype), ones
Value lower_filled(PlanBuilder& builder, const Call& call) {
  return Value::array(builder.fill(call.shape(0), filling_of(call.name()), call.dtype(1, Dtype::kFloat)));
}

// full(shape, fill_value, dtype)
Value lower_full(PlanBuilder& builder, const Call& call) {
  const Dtype dtype = call.dtype(2, call.value(1).number_dtype());
  if (call.is_array(1)) {
    const int value = builder.convert(call.array(1), dtype);
    return Value::array(builder.where(builder.fill(call.shape(0), 1, Dtype::kBool), value, value));
  }
  return Value::array(builder.fill(call.shape(0), call.number(1, 0), dtype));
}

// zeros_like(input, dtype), ones_like; new_zeros(input, shape, dtype), new_ones
Value lower_filled_like(PlanBuilder& builder, const Call& call) {
  const int a = call.array(0);
  const bool is_new = call.name().starts_with("new_");
  const Shape shape = is_new ? call.shape(1) : builder.shape(a);
  return Value::array(builder.fill(shape, filling_of(call.name()), call.dtype(is_new ? 2 : 1, builder.dtype(a))));
}

// full_like(input, fill_value, dtype)
Value lower_full_like(PlanBuilder& builder, const Call& call) {
  const int a = call.array(0);
  const Shape shape = builder.shape(a);
  return Value::array(builder.fill(shape, call.number(1, 0), call.dtype(2, builder.dtype(a))));
}

// tensor(data, dtype), where data is a number or a list of numbers
Value lower_tensor(PlanBuilder& builder, const Call& call) {
  const Value& data = call.value(0);
  int out = -1;
  if (data.is(Value::Kind::kList) && !data.items.empty()) {
    std::vector<int> parts;
    for (const Value& item : data.items) {
      if (!item.is_number()) return Value::array(call.fail(0, "must be a number or a list of numbers"));
      parts.push_back(builder.fill(Shape::of(1), item.as_double(), item.number_dtype()));
    }
    out = builder.concat(parts, 0);
  } else {
    if (!data.is_number()) return Value::array(call.fail(0, "must be a number or a list of numbers"));
    out = call.array(0);
  }
  return Value::array(builder.convert(out, call.dtype(1, builder.dtype(out))));
}

// arange(end), arange(start, end, step, dtype)
Value lower_arange(PlanBuilder& builder, const Call& call) {
  const int64_t begin = call.has(1) ? call.integer(0) : 0;
  const int64_t end = call.has(1) ? call.integer(1) : call.integer(0);
  const int64_t step = call.integer(2, 1);
  if (step == 0) return Value::array(call.fail(2, "must not be 0"));
  const double span = (static_cast<double>(end) - static_cast<double>(begin)) / static_cast<double>(step);
  if (!(span < 1e9)) return Value::array(builder.fail("it makes too many elements"));
  const int64_t count = span <= 0 ? 0 : static_cast<int64_t>(std::ceil(span));
  return Value::array(
      builder.range(count, static_cast<double>(begin), static_cast<double>(step), call.dtype(3, Dtype::kInt)));
}

Value lower_detach(PlanBuilder& builder, const Call& call) {
  return Value::array(builder.unary("detach", call.array(0)));
}

// clone, contiguous, cpu: nothing here can tell a copy from the original
Value lower_same(PlanBuilder&, const Call& call) {
  return Value::array(call.array(0));
}

Value lower_named_conversion(PlanBuilder& builder, const Call& call) {
  const std::string_view name = call.name();
  const bool integer = name == "long" || name == "int";
  const Dtype dtype = name == "bool" ? Dtype::kBool : integer ? Dtype::kInt : Dtype::kFloat;
  return Value::array(builder.convert(call.array(0), dtype));
}

// to(dtype), to(device), to(device, dtype), to(other)
Value lower_to(PlanBuilder& builder, const Call& call) {
  int out = call.array(0);
  for (size_t i = 1; i <= 3; ++i) {
    const Value& to = call.value(i);
    if (to.is(Value::Kind::kDtype)) {
      out = builder.convert(out, to.dtype);
    } else if (to.is(Value::Kind::kArray)) {
      out = builder.convert(out, builder.dtype(static_cast<int>(to.integer)));
    } else if (to.is_given() && !to.is(Value::Kind::kDevice) && to.text != "cpu") {
      return Value::array(builder.fail("it takes a dtype, the device cpu, or another tensor"));
    }
  }
  return Value::array(out);
}

Value lower_type_as(PlanBuilder& builder, const Call& call) {
  const int a = call.array(0);
  return Value::array(builder.convert(a, builder.dtype(call.array(1))));
}

constexpr std::array kCreationOperations = std::to_array<Operation>({
    {"zeros", kTorch, "shape... dtype? device= layout= requires_grad=", lower_filled},
    {"ones", kTorch, "shape... dtype? device= layout= requires_grad=", lower_filled},
    {"full", kTorch, "shape fill_value dtype? device= layout= requires_grad=", lower_full},
    {"zeros_like", kTorch, "input dtype? device= layout= memory_format= requires_grad=", lower_filled_like},
    {"ones_like", kTorch, "input dtype? device= layout= memory_format= requires_grad=", lower_filled_like},
    {"new_zeros", kMethod, "input shape... dtype? device= layout= requires_grad=", lower_filled_like},
    {"new_ones", kMethod, "input shape... dtype? device= layout= requires_grad=", lower_filled_like},
    {"full_like", kTorch, "input fill_value dtype? device= layout= memory_format= requires_grad=", lower_full_like},
    {"tensor", kTorch, "data dtype? device= requires_grad=", lower_tensor},
    {"scalar_tensor", kTorch, "data dtype? device= layout= requires_grad=", lower_tensor},
    {"arange", kTorch, "start end? step? dtype? device= layout= requires_grad=", lower_arange},
    {"detach", kTensor, "input", lower_detach},
    {"clone", kTensor, "input memory_format=", lower_same},
    {"contiguous", kMethod, "input memory_format=", lower_same},
    {"cpu", kMethod, "input memory_format=", lower_same},
    {"float", kMethod, "input memory_format=", lower_named_conversion},
    {"double", kMethod, "input memory_format=", lower_named_conversion},
    {"long", kMethod, "input memory_format=", lower_named_conversion},
    {"int", kMethod, "input memory_format=", lower_named_conversion},
    {"bool", kMethod, "input memory_format=", lower_named_conversion},
    {"to", kMethod, "input device? dtype? other? non_blocking= copy= memory_format=", lower_to},
    {"type_as", kMethod, "input other", lower_type_as},
});

}  // namespace

std::span<const Operation> creation_operations() {
  return kCreationOperations;
}

}  // namespace tuft::loss_graph
