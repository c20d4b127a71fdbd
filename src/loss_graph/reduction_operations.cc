// Sums, means, extremes and other results along dimensions, and scans.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "loss_graph/operation.h"

namespace tuft::loss_graph {
namespace {

// The number of elements that a reduction takes together.
int64_t elements_along(const Shape& shape, const std::vector<int>& dims) {
  if (dims.empty() || shape.rank == 0) return shape.count();
  return std::accumulate(dims.begin(), dims.end(), int64_t{1},
                         [&](int64_t product, int dim) { return product * shape.extent(dim); });
}

int divided(PlanBuilder& builder, int a, double by) {
  return builder.binary("div", a, builder.fill(Shape::scalar(), by, Dtype::kFloat));
}

int mean(PlanBuilder& builder, int a, const std::vector<int>& dims, bool keepdim) {
  const int64_t count = elements_along(builder.shape(a), dims);
  return divided(builder, builder.reduce(Reduction::kSum, a, dims, keepdim), static_cast<double>(count));
}

// sum(input, dim, keepdim, dtype), and others of the same form
Value lower_sum(PlanBuilder& builder, const Call& call) {
  int a = call.array(0);
  if (call.has(3)) a = builder.convert(a, call.dtype(3, Dtype::kFloat));
  const auto dims = call.dims(1, builder.shape(a).rank);
  return Value::array(builder.reduce(Reduction::kSum, a, dims, call.flag(2, false)));
}

Value lower_mean(PlanBuilder& builder, const Call& call) {
  int a = call.array(0);
  if (call.has(3)) a = builder.convert(a, call.dtype(3, Dtype::kFloat));
  if (builder.dtype(a) != Dtype::kFloat)
    return Value::array(builder.fail("integers have no mean; convert them with .float()"));
  return Value::array(mean(builder, a, call.dims(1, builder.shape(a).rank), call.flag(2, false)));
}

Reduction reduction_of(std::string_view name) {
  if (name == "argmax") return Reduction::kArgMax;
  if (name == "argmin") return Reduction::kArgMin;
  if (name == "logsumexp") return Reduction::kLogSumExp;
  return name == "amin" || name == "min" ? Reduction::kMin : Reduction::kMax;
}

Value lower_reduction(PlanBuilder& builder, const Call& call) {
  int a = call.array(0);
  const Reduction reduction = reduction_of(call.name());
  if (reduction == Reduction::kLogSumExp) a = builder.convert(a, Dtype::kFloat);
  const auto dims = call.dims(1, builder.shape(a).rank);
  if ((reduction == Reduction::kArgMax || reduction == Reduction::kArgMin) && dims.size() > 1) {
    return Value::array(call.fail(1, "must be one dimension"));
  }
  return Value::array(builder.reduce(reduction, a, dims, call.flag(2, false)));
}

// The largest or smallest value of each line, and where it lies first.
Value extreme_along(PlanBuilder& builder, bool largest, int a, int dim, bool keepdim) {
  const Shape shape = builder.shape(a);
  const int first = builder.reduce(largest ? Reduction::kArgMax : Reduction::kArgMin, a, {dim}, true);
  const int values = shape.rank == 0 ? a : builder.gather(a, dim, first, builder.shape(first));
  if (keepdim || shape.rank == 0) return Value::list({Value::array(values), Value::array(first)});
  Shape without = Shape::scalar();
  if (shape.rank == 2) without = Shape::of(shape.extent(1 - dim));
  return Value::list({Value::array(builder.reshape(values, without)), Value::array(builder.reshape(first, without))});
}

// max(input), max(input, other) and max(input, dim, keepdim)
Value lower_extreme(PlanBuilder& builder, const Call& call) {
  const bool largest = call.name() == "max";
  const int a = call.array(0);
  const bool has_other = call.has(3) || call.is_array(1);
  if (has_other) {
    return Value::array(builder.binary(largest ? "maximum" : "minimum", a, call.array(call.has(3) ? 3 : 1)));
  }
  if (!call.has(1)) return Value::array(builder.reduce(reduction_of(call.name()), a, {}, false));
  const int dim = builder.dimension(call.integer(1), builder.shape(a).rank);
  Value pair = extreme_along(builder, largest, a, dim, call.flag(2, false));
  pair.keys = {"values", "indices"};
  return pair;
}

Value lower_any(PlanBuilder& builder, const Call& call) {
  const int a = call.array(0);
  const bool all = call.name() == "all";
  const int wanted = all ? builder.unary("logical_not", a) : builder.convert(a, Dtype::kBool);
  const auto dims = call.dims(1, builder.shape(a).rank);
  const int count = builder.reduce(Reduction::kSum, wanted, dims, call.flag(2, false));
  const int zero = builder.fill(Shape::scalar(), 0, Dtype::kInt);
  return Value::array(builder.binary(all ? "eq" : "gt", count, zero));
}

Value lower_count_nonzero(PlanBuilder& builder, const Call& call) {
  const int a = builder.convert(call.array(0), Dtype::kBool);
  return Value::array(builder.reduce(Reduction::kSum, a, call.dims(1, builder.shape(a).rank), false));
}

// var(input, dim, unbiased, keepdim, correction); var(input, unbiased)
Value lower_variance(PlanBuilder& builder, const Call& call) {
  const int a = call.array(0);
  if (builder.dtype(a) != Dtype::kFloat)
    return Value::array(builder.fail("it takes floats; convert integers with .float()"));
  const bool only_unbiased = call.value(1).is(Value::Kind::kBool);
  const bool unbiased = only_unbiased ? call.flag(1, true) : call.flag(2, true);
  const double correction = std::trunc(call.number(4, unbiased ? 1 : 0));
  const auto dims = only_unbiased ? std::vector<int>() : call.dims(1, builder.shape(a).rank);
  const auto count = static_cast<double>(elements_along(builder.shape(a), dims));
  const int deviation = builder.binary("sub", a, mean(builder, a, dims, true));
  const int sum = builder.reduce(Reduction::kSum, builder.unary("square", deviation), dims, call.flag(3, false));
  const int variance = divided(builder, sum, std::max(0.0, count - correction));
  return Value::array(call.name() == "std" ? builder.unary("sqrt_of_var", variance) : variance);
}

Value lower_scan(PlanBuilder& builder, const Call& call) {
  int a = call.array(0);
  if (call.has(2)) a = builder.convert(a, call.dtype(2, Dtype::kFloat));
  const int dim = builder.dimension(call.integer(1), builder.shape(a).rank);
  if (call.name() == "cumsum") return Value::array(builder.scan(Scan::kCumSum, a, dim));
  if (builder.dtype(a) != Dtype::kFloat)
    return Value::array(builder.fail("it takes floats; convert integers with .float()"));
  return Value::array(builder.scan(call.name() == "softmax" ? Scan::kSoftmax : Scan::kLogSoftmax, a, dim));
}

Value lower_dot(PlanBuilder& builder, const Call& call) {
  const int a = call.array(0);
  const int b = call.array(1);
  if (builder.shape(a).rank != 1 || !(builder.shape(a) == builder.shape(b))) {
    return Value::array(builder.fail("it takes two one-dimensional tensors of the same length"));
  }
  return Value::array(builder.reduce(Reduction::kSum, builder.binary("mul", a, b), {}, false));
}

// Products with at least one vector. That of two matrices would need an array of three dimensions.
Value lower_matmul(PlanBuilder& builder, const Call& call) {
  const int a = call.array(0);
  int b = call.array(1);
  const Shape left = builder.shape(a);
  const Shape right = builder.shape(b);
  if (left.rank == 1 && right.rank == 1) return lower_dot(builder, call);
  if (left.rank == 2 && right.rank == 1 && left.cols() == right.cols()) {
    return Value::array(builder.reduce(Reduction::kSum, builder.binary("mul", a, b), {1}, false));
  }
  if (left.rank == 1 && right.rank == 2 && left.cols() == right.rows()) {
    const int column = builder.reshape(a, Shape::of(left.cols(), 1));
    return Value::array(builder.reduce(Reduction::kSum, builder.binary("mul", column, b), {0}, false));
  }
  return Value::array(
      builder.fail("shapes " + left.text() + " and " + right.text() +
                   " cannot be multiplied here; at least one must be a vector, and the lengths must fit"));
}

Value lower_outer(PlanBuilder& builder, const Call& call) {
  const int a = call.array(0);
  const int b = call.array(1);
  if (builder.shape(a).rank != 1 || builder.shape(b).rank != 1) {
    return Value::array(builder.fail("it takes two one-dimensional tensors"));
  }
  return Value::array(builder.binary("mul", builder.reshape(a, Shape::of(builder.shape(a).cols(), 1)), b));
}

constexpr std::array kReductionOperations = std::to_array<Operation>({
    {"sum", kTensor, "input dim? keepdim? dtype?", lower_sum},
    {"mean", kTensor, "input dim? keepdim? dtype?", lower_mean},
    {"var", kTensor, "input dim? unbiased? keepdim? correction?", lower_variance},
    {"std", kTensor, "input dim? unbiased? keepdim? correction?", lower_variance},
    {"max", kTensor, "input dim? keepdim? other?", lower_extreme},
    {"min", kTensor, "input dim? keepdim? other?", lower_extreme},
    {"amax", kTensor, "input dim? keepdim?", lower_reduction},
    {"amin", kTensor, "input dim? keepdim?", lower_reduction},
    {"argmax", kTensor, "input dim? keepdim?", lower_reduction},
    {"argmin", kTensor, "input dim? keepdim?", lower_reduction},
    {"logsumexp", kTensor, "input dim keepdim?", lower_reduction},
    {"any", kTensor, "input dim? keepdim?", lower_any},
    {"all", kTensor, "input dim? keepdim?", lower_any},
    {"count_nonzero", kTensor, "input dim?", lower_count_nonzero},
    {"cumsum", kTensor, "input dim dtype?", lower_scan},
    {"softmax", kTensor, "input dim dtype? _stacklevel=", lower_scan},
    {"log_softmax", kTensor, "input dim dtype? _stacklevel=", lower_scan},
    {"dot", kTensor, "input other", lower_dot},
    {"mv", kTensor, "input vec", lower_matmul},
    {"matmul", kTensor | kOperator, "input other", lower_matmul},
    {"outer", kTensor, "input vec2", lower_outer},
});

}  // namespace

std::span<const Operation> reduction_operations() {
  return kReductionOperations;
}

}  // namespace tuft::loss_graph
