#include "loss_graph/evaluation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "loss_graph/strides.h"

namespace tuft::loss_graph {
namespace {

// Returns the better of the current best and a new value; NaN is better than everything, as in torch.
bool beats(double value, double best, bool largest) {
  if (std::isnan(best)) return false;
  return std::isnan(value) || (largest ? value > best : value < best);
}

double reduce_line(Reduction reduction, const double* x, int64_t n, int64_t stride) {
  if (reduction == Reduction::kSum) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += x[i * stride];
    return sum;
  }
  const bool largest = reduction != Reduction::kMin && reduction != Reduction::kArgMin;
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i) {
    if (beats(x[i * stride], x[best * stride], largest)) best = i;
  }
  if (reduction == Reduction::kArgMax || reduction == Reduction::kArgMin) return static_cast<double>(best);
  const double extreme = x[best * stride];
  if (reduction != Reduction::kLogSumExp || !std::isfinite(extreme)) return extreme;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i * stride] - extreme);
  return extreme + std::log(sum);
}

void scan_line(Scan scan, const double* x, double* y, int64_t n, int64_t stride) {
  if (scan == Scan::kCumSum) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) y[i * stride] = sum += x[i * stride];
    return;
  }
  if (n == 0) return;
  const double total = reduce_line(Reduction::kLogSumExp, x, n, stride);
  for (int64_t i = 0; i < n; ++i) {
    const double log_share = x[i * stride] - total;
    y[i * stride] = scan == Scan::kSoftmax ? std::exp(log_share) : log_share;
  }
}

}  // namespace

Evaluation::Evaluation(const Plan& plan, std::span<const InputValues> inputs)
    : plan_(plan), inputs_(inputs), values_(new double[static_cast<size_t>(plan.elements)]) {}

std::string Evaluation::forward() {
  for (size_t i = 0; i < plan_.steps.size(); ++i) {
    run(plan_.steps[i], values(static_cast<int>(i)));
    if (failed_step_ < 0) continue;
    failed_step_ = static_cast<int>(i);
    return "an index lies outside of the array";
  }
  return {};
}

void Evaluation::run(const Step& step, double* out) {
  const int64_t count = step.shape.count();
  switch (step.kernel) {
    case Kernel::kInput:
      return run_input(step, out);
    case Kernel::kFill:
      std::fill(out, out + count, step.number);
      return;
    case Kernel::kRange:
      for (int64_t i = 0; i < count; ++i) out[i] = step.number + static_cast<double>(i) * step.increment;
      return;
    case Kernel::kUnary: {
      const double* x = values(step.in[0]);
      for (int64_t i = 0; i < count; ++i) out[i] = step.unary->value(x[i]);
      return;
    }
    case Kernel::kBinary:
      return run_binary(step, out);
    case Kernel::kWhere:
      return run_where(step, out);
    case Kernel::kCopy: {
      const double* x = values(step.in[0]) + step.begin;
      for_cells(step.shape,
                [&](int64_t i, int64_t r, int64_t c) { out[i] = x[r * step.row_stride + c * step.col_stride]; });
      return;
    }
    case Kernel::kConcat:
      return run_concat(step, out);
    case Kernel::kGather:
      if (!run_gather(step, out)) failed_step_ = 0;
      return;
    case Kernel::kReduce:
      return run_reduce(step, out);
    case Kernel::kScan:
      return run_scan(step, out);
  }
}

void Evaluation::run_input(const Step& step, double* out) const {
  std::visit([&](const auto& source) { std::copy(source.begin(), source.end(), out); },
             inputs_[static_cast<size_t>(step.index)]);
}

void Evaluation::run_binary(const Step& step, double* out) const {
  const double* a = values(step.in[0]);
  const double* b = values(step.in[1]);
  const Strides sa(plan_.steps[static_cast<size_t>(step.in[0])].shape);
  const Strides sb(plan_.steps[static_cast<size_t>(step.in[1])].shape);
  for_cells(step.shape,
            [&](int64_t i, int64_t r, int64_t c) { out[i] = step.binary->value(a[sa.at(r, c)], b[sb.at(r, c)]); });
}

void Evaluation::run_where(const Step& step, double* out) const {
  const double* condition = values(step.in[0]);
  const double* a = values(step.in[1]);
  const double* b = values(step.in[2]);
  const Strides sc(plan_.steps[static_cast<size_t>(step.in[0])].shape);
  const Strides sa(plan_.steps[static_cast<size_t>(step.in[1])].shape);
  const Strides sb(plan_.steps[static_cast<size_t>(step.in[2])].shape);
  for_cells(step.shape, [&](int64_t i, int64_t r, int64_t c) {
    out[i] = condition[sc.at(r, c)] != 0 ? a[sa.at(r, c)] : b[sb.at(r, c)];
  });
}

void Evaluation::run_concat(const Step& step, double* out) const {
  int64_t begin = 0;
  for (const int part : step.parts) {
    const Shape& shape = plan_.steps[static_cast<size_t>(part)].shape;
    const double* x = values(part);
    const int64_t width = step.shape.cols();
    for_cells(shape, [&](int64_t i, int64_t r, int64_t c) {
      out[step.index == 0 ? (begin + r) * width + c : r * width + begin + c] = x[i];
    });
    begin += step.index == 0 ? shape.rows() : shape.cols();
  }
}

// Returns the element of in[0] for a cell of the result; below 0: the index is out of range.
int64_t Evaluation::gather_source(const Step& step, int64_t row, int64_t col) const {
  const Shape& shape = plan_.steps[static_cast<size_t>(step.in[0])].shape;
  const int64_t extent = step.index == 0 ? shape.rows() : shape.cols();
  const double given = values(step.in[1])[row * step.row_stride + col * step.col_stride];
  if (!(given >= -static_cast<double>(extent) && given < static_cast<double>(extent))) return -1;
  auto index = static_cast<int64_t>(given);
  if (index < 0) index += extent;
  return step.index == 0 ? index * shape.cols() + col : row * shape.cols() + index;
}

bool Evaluation::run_gather(const Step& step, double* out) const {
  const double* x = values(step.in[0]);
  bool inside = true;
  for_cells(step.shape, [&](int64_t i, int64_t r, int64_t c) {
    const int64_t source = gather_source(step, r, c);
    inside = inside && source >= 0;
    out[i] = source >= 0 ? x[source] : 0.0;
  });
  return inside;
}

void Evaluation::run_reduce(const Step& step, double* out) const {
  const double* x = values(step.in[0]);
  for_lines(step.line, [&](int64_t line, int64_t begin) {
    out[line] = reduce_line(step.reduction, x + begin, step.line.n, step.line.inner);
  });
}

void Evaluation::run_scan(const Step& step, double* out) const {
  const double* x = values(step.in[0]);
  for_lines(step.line, [&](int64_t, int64_t begin) {
    scan_line(step.scan, x + begin, out + begin, step.line.n, step.line.inner);
  });
}

}  // namespace tuft::loss_graph
