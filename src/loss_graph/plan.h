// Plan: a graph for inputs of given shapes, as a list of steps that each make one array. Internal to the module.
//
// An array has at most two dimensions and lies row-major in the arena of an evaluation, as doubles whatever its dtype.
// One of rank 0 or 1 counts as a single row.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "loss_graph/functions.h"
#include "loss_graph/limits.h"
#include "loss_graph/value.h"

namespace tuft::loss_graph {

struct Shape {
  int rank = 0;
  std::array<int64_t, 2> extents = {1, 1};  // of the first `rank` dimensions

  static Shape scalar() { return {}; }
  static Shape of(int64_t length) { return {1, {length, 1}}; }
  static Shape of(int64_t rows, int64_t cols) { return {2, {rows, cols}}; }

  int64_t rows() const { return rank == 2 ? extents[0] : 1; }
  int64_t cols() const { return rank == 0 ? 1 : extents[static_cast<size_t>(rank - 1)]; }
  int64_t count() const { return rows() * cols(); }
  int64_t extent(int dim) const { return extents[static_cast<size_t>(dim)]; }
  bool operator==(const Shape& other) const {
    return rank == other.rank && rows() == other.rows() && cols() == other.cols();
  }
  std::string text() const;  // "[3, 4]"
};

enum class Kernel : uint8_t {
  kInput,   // index: of the graph's input
  kFill,    // number everywhere
  kRange,   // number, number + increment, ...
  kUnary,   // unary(in[0])
  kBinary,  // binary(in[0], in[1]), both broadcast
  kWhere,   // in[0] ? in[1] : in[2], all broadcast
  kCopy,    // element (r, c) is that at begin + r * row_stride + c * col_stride of in[0]
  kConcat,  // parts side by side: along rows (index 0) or columns (index 1)
  kGather,  // element (r, c) is in[0] at (r, c), with the row (index 0) or column (index 1) replaced by in[1]'s
            // element row_stride * r + col_stride * c
  kReduce,  // of in[0], along `line`
  kScan,    // of in[0], along `line`; keeps the shape
};
enum class Reduction : uint8_t { kSum, kMax, kMin, kArgMax, kArgMin, kLogSumExp };
enum class Scan : uint8_t { kCumSum, kSoftmax, kLogSoftmax };

// The lines of an array along which a reduction or scan runs: element i of line (o, k) lies at (o * n + i) * inner + k.
struct Line {
  int64_t outer = 1;
  int64_t n = 1;
  int64_t inner = 1;
};

struct Step {
  Kernel kernel = Kernel::kFill;
  Shape shape = {};
  Dtype dtype = Dtype::kFloat;
  bool differentiable = false;  // depends on logprobs in a way that has a derivative
  int node = -1;                // of the graph, that made it
  int64_t at = 0;               // the array's first element in the arena
  std::array<int, 3> in = {-1, -1, -1};
  std::vector<int> parts = {};
  const UnaryFunction* unary = nullptr;
  const BinaryFunction* binary = nullptr;
  Reduction reduction = Reduction::kSum;
  Scan scan = Scan::kCumSum;
  Line line = {};
  int index = 0;
  double number = 0;
  double increment = 0;
  int64_t begin = 0;
  int64_t row_stride = 0;
  int64_t col_stride = 0;
};

struct Plan {
  std::vector<Step> steps;
  int64_t elements = 0;  // of all arrays
  // The same, but a reduction counts what it reads, and an element of a function, softmax or logsumexp its cost: an
  // evaluation takes time in proportion.
  int64_t work = 0;
  int64_t values = 0;  // in the arguments of all operations
  int loss = -1;       // the step that makes it
  std::vector<int> metrics = {};
};

// Adds steps to a plan and checks their operands. It has more than 25 methods, one for each kind of step. The first
// problem stays, as in JsonFields: what is built after it is never run, so callers check status() once for each node.
class PlanBuilder {
 public:
  explicit PlanBuilder(const Limits& limits) : limits_(limits) {}

  // Notes a problem and returns a step that stands for the missing one.
  int fail(std::string what);
  const Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  void set_node(int node) { node_ = node; }

  const Step& step(int index) const { return plan_.steps[static_cast<size_t>(index)]; }
  const Shape& shape(int index) const { return step(index).shape; }
  Dtype dtype(int index) const { return step(index).dtype; }

  int input(int number, const Shape& shape, Dtype dtype, bool differentiable);
  int fill(const Shape& shape, double value, Dtype dtype);
  int range(int64_t count, double first, double increment, Dtype dtype);
  int unary(std::string_view function, int a);
  // The same, with a result of another type.
  int unary(std::string_view function, int a, Dtype dtype);
  int binary(std::string_view function, int a, int b);
  int where(int condition, int a, int b);
  int copy(int a, const Shape& shape, int64_t begin, int64_t row_stride, int64_t col_stride);
  int reshape(int a, const Shape& shape);
  int concat(const std::vector<int>& parts, int dim);
  // `index` has the result's shape, or is one-dimensional and replaces dimension `dim` of `a`.
  int gather(int a, int dim, int index, const Shape& shape);
  // Without dimensions, of all elements.
  int reduce(Reduction reduction, int a, const std::vector<int>& dims, bool keepdim);
  int scan(Scan scan, int a, int dim);

  // Converts to the dtype; returns the same step if it has it.
  int convert(int a, Dtype dtype);
  // Returns a valid dimension of an array of this rank; a negative one counts from the end. Notes a problem.
  int dimension(int64_t dim, int rank);
  // Returns the common shape; notes a problem if there is none.
  Shape broadcast(Shape a, Shape b);

  Plan take() { return std::move(plan_); }
  Plan& plan() { return plan_; }

 private:
  int add(Step step);

  const Limits& limits_;
  Plan plan_;
  Status status_;
  int node_ = -1;
};

}  // namespace tuft::loss_graph
