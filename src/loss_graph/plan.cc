#include "loss_graph/plan.h"

#include <algorithm>
#include <utility>

namespace tuft::loss_graph {
namespace {

Dtype wider(Dtype a, Dtype b) {
  return std::max(a, b);
}

Dtype result_dtype(ResultType type, Dtype operand) {
  if (type == ResultType::kBool) return Dtype::kBool;
  return type == ResultType::kFloat ? Dtype::kFloat : operand;
}

// Returns the cost of an element, as of a function.
int64_t cost_of(const Step& step) {
  constexpr int64_t kTwoExponentials = 4;
  if (step.unary != nullptr) return step.unary->cost;
  if (step.binary != nullptr) return step.binary->cost;
  return step.reduction == Reduction::kLogSumExp || step.scan != Scan::kCumSum ? kTwoExponentials : 1;
}

int64_t work_of(const Step& step, int64_t count) {
  const int64_t read = step.kernel == Kernel::kReduce ? step.line.outer * step.line.n * step.line.inner : 0;
  return std::max(count, read) * cost_of(step);
}

}  // namespace

std::string Shape::text() const {
  std::string out = "[";
  for (int dim = 0; dim < rank; ++dim) out += (dim > 0 ? ", " : "") + std::to_string(extent(dim));
  return out + "]";
}

int PlanBuilder::fail(std::string what) {
  if (status_.ok()) status_ = invalid_argument(std::move(what), "custom_loss_invalid");
  Step none;
  none.at = 0;
  plan_.steps.push_back(none);
  return static_cast<int>(plan_.steps.size()) - 1;
}

int PlanBuilder::add(Step step) {
  if (plan_.steps.size() >= limits_.steps) {
    return fail("the graph needs more than " + std::to_string(limits_.steps) + " arrays");
  }
  // The extents come from arrays that exist or were checked, so the product cannot overflow before this check.
  const int64_t rows = step.shape.rows();
  const int64_t cols = step.shape.cols();
  if (rows < 0 || cols < 0) return fail("it makes an array of a negative size");
  int64_t count = 0;
  if (__builtin_mul_overflow(rows, cols, &count) || count > limits_.array_elements) {
    return fail("it makes an array of shape " + step.shape.text() + "; an array has at most " +
                std::to_string(limits_.array_elements) + " elements");
  }
  const int64_t work = work_of(step, count);
  if (work > limits_.evaluation_elements - plan_.work) {
    return fail(
        "up to here, the loss of one datum computes more than " + std::to_string(limits_.evaluation_elements) +
        " elements, of which reductions count what they read and functions such as sin count several times; use fewer "
        "operations, or shorter datums");
  }
  step.at = plan_.elements;
  step.node = node_;
  plan_.elements += count;
  plan_.work += work;
  plan_.steps.push_back(std::move(step));
  return static_cast<int>(plan_.steps.size()) - 1;
}

int PlanBuilder::input(int number, const Shape& shape, Dtype dtype, bool differentiable) {
  Step step{.kernel = Kernel::kInput, .shape = shape, .dtype = dtype, .differentiable = differentiable};
  step.index = number;
  return add(std::move(step));
}

int PlanBuilder::fill(const Shape& shape, double value, Dtype dtype) {
  Step step{.kernel = Kernel::kFill, .shape = shape, .dtype = dtype};
  step.number = value;
  return add(std::move(step));
}

int PlanBuilder::range(int64_t count, double first, double increment, Dtype dtype) {
  Step step{.kernel = Kernel::kRange, .shape = Shape::of(count), .dtype = dtype};
  step.number = first;
  step.increment = increment;
  return add(std::move(step));
}

int PlanBuilder::unary(std::string_view function, int a) {
  return unary(function, a, result_dtype(find_unary(function)->type, dtype(a)));
}

int PlanBuilder::unary(std::string_view function, int a, Dtype dtype) {
  const UnaryFunction* found = find_unary(function);
  Step step{.kernel = Kernel::kUnary, .shape = shape(a), .dtype = dtype};
  step.differentiable = this->step(a).differentiable && found->slope != nullptr && dtype == Dtype::kFloat;
  step.in[0] = a;
  step.unary = found;
  return add(std::move(step));
}

int PlanBuilder::binary(std::string_view function, int a, int b) {
  const BinaryFunction* found = find_binary(function);
  Step step{.kernel = Kernel::kBinary, .shape = broadcast(shape(a), shape(b))};
  step.dtype = result_dtype(found->type, wider(dtype(a), dtype(b)));
  step.differentiable = found->slope_a != nullptr && (this->step(a).differentiable || this->step(b).differentiable);
  step.in = {a, b, -1};
  step.binary = found;
  return add(std::move(step));
}

int PlanBuilder::where(int condition, int a, int b) {
  Step step{.kernel = Kernel::kWhere, .shape = broadcast(shape(condition), broadcast(shape(a), shape(b)))};
  step.dtype = wider(dtype(a), dtype(b));
  step.differentiable = this->step(a).differentiable || this->step(b).differentiable;
  step.in = {condition, a, b};
  return add(std::move(step));
}

int PlanBuilder::copy(int a, const Shape& shape, int64_t begin, int64_t row_stride, int64_t col_stride) {
  Step step{.kernel = Kernel::kCopy, .shape = shape, .dtype = dtype(a)};
  step.differentiable = this->step(a).differentiable;
  step.in[0] = a;
  step.begin = begin;
  step.row_stride = row_stride;
  step.col_stride = col_stride;
  return add(std::move(step));
}

int PlanBuilder::reshape(int a, const Shape& shape) {
  if (shape.count() != this->shape(a).count()) {
    return fail("an array of shape " + this->shape(a).text() + " cannot be seen as one of shape " + shape.text());
  }
  return copy(a, shape, 0, shape.cols(), 1);
}

int PlanBuilder::concat(const std::vector<int>& parts, int dim) {
  if (parts.empty()) return fail("it gets no arrays");
  Step step{.kernel = Kernel::kConcat, .shape = shape(parts.front()), .dtype = dtype(parts.front())};
  if (step.shape.rank == 0) return fail("arrays without a dimension cannot be joined; use torch.stack");
  dim = dimension(dim, step.shape.rank);
  int64_t extent = 0;
  for (const int part : parts) {
    Shape rest = shape(part);
    if (rest.rank != step.shape.rank) return fail("the arrays have different numbers of dimensions");
    extent += rest.extent(dim);
    rest.extents[static_cast<size_t>(dim)] = shape(parts.front()).extent(dim);
    if (!(rest == shape(parts.front()))) return fail("the arrays have different sizes in the other dimension");
    step.dtype = wider(step.dtype, dtype(part));
    step.differentiable = step.differentiable || this->step(part).differentiable;
  }
  step.shape.extents[static_cast<size_t>(dim)] = extent;
  step.index = step.shape.rank == 2 ? dim : 1;
  step.parts = parts;
  return add(std::move(step));
}

int PlanBuilder::gather(int a, int dim, int index, const Shape& shape) {
  if (dtype(index) != Dtype::kInt) return fail("the index must have an integer dtype");
  Step step{.kernel = Kernel::kGather, .shape = shape, .dtype = dtype(a)};
  step.differentiable = this->step(a).differentiable;
  step.in = {a, index, -1};
  step.index = this->shape(a).rank == 2 ? dim : 1;
  const bool whole = this->shape(index) == shape;
  step.row_stride = whole ? shape.cols() : (step.index == 0 ? 1 : 0);
  step.col_stride = whole ? 1 : (step.index == 0 ? 0 : 1);
  return add(std::move(step));
}

int PlanBuilder::reduce(Reduction reduction, int a, const std::vector<int>& dims, bool keepdim) {
  const Shape& shape = this->shape(a);
  const bool all = dims.empty() || static_cast<int>(dims.size()) == shape.rank || shape.rank == 0;
  Step step{.kernel = Kernel::kReduce, .shape = shape, .dtype = dtype(a)};
  step.in[0] = a;
  step.reduction = reduction;
  if (all) {
    step.line = {1, shape.count(), 1};
    step.shape = Shape::scalar();
    if (keepdim) step.shape = {shape.rank, {1, 1}};
  } else {
    const int dim = dims.front();
    step.line = dim == 0 ? Line{1, shape.rows(), shape.cols()} : Line{shape.rows(), shape.cols(), 1};
    const int64_t left = dim == 0 ? shape.cols() : shape.rows();
    step.shape = Shape::of(left);
    if (keepdim) step.shape = dim == 0 ? Shape::of(1, left) : Shape::of(left, 1);
  }
  const bool indices = reduction == Reduction::kArgMax || reduction == Reduction::kArgMin;
  if (step.line.n == 0 && reduction != Reduction::kSum) return fail("an array without elements has no such value");
  if (indices) step.dtype = Dtype::kInt;
  if (reduction == Reduction::kSum && step.dtype == Dtype::kBool) step.dtype = Dtype::kInt;
  if (reduction == Reduction::kLogSumExp) step.dtype = Dtype::kFloat;
  step.differentiable = this->step(a).differentiable && !indices;
  return add(std::move(step));
}

int PlanBuilder::scan(Scan scan, int a, int dim) {
  const Shape& shape = this->shape(a);
  Step step{.kernel = Kernel::kScan, .shape = shape, .dtype = dtype(a)};
  step.differentiable = this->step(a).differentiable;
  step.in[0] = a;
  step.scan = scan;
  const bool down = shape.rank == 2 && dim == 0;
  step.line = down ? Line{1, shape.rows(), shape.cols()} : Line{shape.rows(), shape.cols(), 1};
  if (scan != Scan::kCumSum) step.dtype = Dtype::kFloat;
  if (step.dtype == Dtype::kBool) step.dtype = Dtype::kInt;
  return add(std::move(step));
}

int PlanBuilder::convert(int a, Dtype dtype) {
  if (this->dtype(a) == dtype) return a;
  if (dtype == Dtype::kBool) return unary("to_bool", a);
  if (dtype == Dtype::kInt) return unary("to_int", a, Dtype::kInt);
  return unary("to_float", a);
}

int PlanBuilder::dimension(int64_t dim, int rank) {
  const int64_t span = std::max(rank, 1);
  if (dim < -span || dim >= span) {
    fail("dimension " + std::to_string(dim) + " does not exist in an array of " + std::to_string(rank) + " dimensions");
    return 0;
  }
  return static_cast<int>(dim < 0 ? dim + span : dim);
}

Shape PlanBuilder::broadcast(Shape a, Shape b) {
  const auto common = [&](int64_t left, int64_t right) {
    if (left != right && left != 1 && right != 1) {
      fail("arrays of the shapes " + a.text() + " and " + b.text() + " do not fit together");
    }
    return left == 1 ? right : left;
  };
  const int rank = std::max(a.rank, b.rank);
  const int64_t rows = common(a.rows(), b.rows());
  const int64_t cols = common(a.cols(), b.cols());
  if (rank == 2) return Shape::of(rows, cols);
  return rank == 1 ? Shape::of(cols) : Shape::scalar();
}

}  // namespace tuft::loss_graph
