#include <algorithm>
#include <cmath>

#include "loss_graph/evaluation.h"
#include "loss_graph/strides.h"

namespace tuft::loss_graph {
namespace {

// Adds to dx what a line of a maximum or minimum gets: equal parts for all elements that have the value.
void share_among_ties(const double* x, double* dx, int64_t n, int64_t stride, double y, double dy) {
  const auto has_it = [&](int64_t i) { return x[i * stride] == y || (std::isnan(y) && std::isnan(x[i * stride])); };
  int64_t ties = 0;
  for (int64_t i = 0; i < n; ++i) ties += has_it(i) ? 1 : 0;
  for (int64_t i = 0; i < n; ++i) {
    if (has_it(i)) dx[i * stride] += dy / static_cast<double>(ties);
  }
}

void back_scan_line(Scan scan, const double* y, const double* dy, double* dx, int64_t n, int64_t stride) {
  double sum = 0;
  switch (scan) {
    case Scan::kCumSum:
      for (int64_t i = n - 1; i >= 0; --i) dx[i * stride] += sum += dy[i * stride];
      return;
    case Scan::kSoftmax:
      for (int64_t i = 0; i < n; ++i) sum += dy[i * stride] * y[i * stride];
      for (int64_t i = 0; i < n; ++i) dx[i * stride] += y[i * stride] * (dy[i * stride] - sum);
      return;
    case Scan::kLogSoftmax:
      for (int64_t i = 0; i < n; ++i) sum += dy[i * stride];
      for (int64_t i = 0; i < n; ++i) dx[i * stride] += dy[i * stride] - std::exp(y[i * stride]) * sum;
      return;
  }
}

}  // namespace

double* Evaluation::gradients(int step) {
  const int64_t at = step < 0 ? -1 : gradient_at_[static_cast<size_t>(step)];
  return at < 0 ? nullptr : gradients_.data() + at;
}

// A gradient flows only into what the loss depends on: a metric of log(0) must not make it NaN.
void Evaluation::find_reached() {
  const std::vector<Step>& steps = plan_.steps;
  gradient_at_.assign(steps.size(), -1);
  int64_t elements = 0;
  const auto reach = [&](int step) {
    if (step < 0 || !steps[static_cast<size_t>(step)].differentiable) return;
    int64_t& at = gradient_at_[static_cast<size_t>(step)];
    if (at >= 0) return;
    at = elements;
    elements += steps[static_cast<size_t>(step)].shape.count();
  };
  reach(plan_.loss);
  for (int i = plan_.loss; i >= 0; --i) {
    if (gradient_at_[static_cast<size_t>(i)] < 0) continue;
    const Step& step = steps[static_cast<size_t>(i)];
    for (const int in : step.in) reach(in);
    for (const int part : step.parts) reach(part);
  }
  gradients_.assign(static_cast<size_t>(elements), 0.0);
}

std::span<const double> Evaluation::gradient(int logprobs) {
  find_reached();
  if (double* loss = gradients(plan_.loss)) *loss = 1.0;
  for (int i = plan_.loss; i > logprobs; --i) {
    if (gradient_at_[static_cast<size_t>(i)] >= 0) back(i);
  }
  const double* gradient = gradients(logprobs);
  if (gradient == nullptr) return {};
  return {gradient, static_cast<size_t>(plan_.steps[static_cast<size_t>(logprobs)].shape.count())};
}

void Evaluation::back(int index) {
  const Step& step = plan_.steps[static_cast<size_t>(index)];
  const double* y = values(index);
  const double* dy = gradients(index);
  switch (step.kernel) {
    case Kernel::kUnary: {
      double* dx = gradients(step.in[0]);
      if (dx == nullptr) return;
      const double* x = values(step.in[0]);
      const int64_t count = step.shape.count();
      for (int64_t i = 0; i < count; ++i) dx[i] += dy[i] * step.unary->slope(x[i], y[i]);
      return;
    }
    case Kernel::kBinary:
      return back_binary(step, y, dy);
    case Kernel::kWhere:
      return back_where(step, dy);
    case Kernel::kCopy:
      return back_copy(step, dy);
    case Kernel::kConcat:
      return back_concat(step, dy);
    case Kernel::kGather:
      return back_gather(step, dy);
    case Kernel::kReduce:
      return back_reduce(step, y, dy);
    case Kernel::kScan:
      return back_scan(step, y, dy);
    case Kernel::kInput:
    case Kernel::kFill:
    case Kernel::kRange:
      return;
  }
}

void Evaluation::back_binary(const Step& step, const double* y, const double* dy) {
  const double* a = values(step.in[0]);
  const double* b = values(step.in[1]);
  const Strides sa(plan_.steps[static_cast<size_t>(step.in[0])].shape);
  const Strides sb(plan_.steps[static_cast<size_t>(step.in[1])].shape);
  double* da = gradients(step.in[0]);
  double* db = gradients(step.in[1]);
  for_cells(step.shape, [&](int64_t i, int64_t r, int64_t c) {
    const int64_t ia = sa.at(r, c);
    const int64_t ib = sb.at(r, c);
    if (da != nullptr) da[ia] += dy[i] * step.binary->slope_a(a[ia], b[ib], y[i]);
    if (db != nullptr) db[ib] += dy[i] * step.binary->slope_b(a[ia], b[ib], y[i]);
  });
}

void Evaluation::back_where(const Step& step, const double* dy) {
  const double* condition = values(step.in[0]);
  const Strides sc(plan_.steps[static_cast<size_t>(step.in[0])].shape);
  const Strides sa(plan_.steps[static_cast<size_t>(step.in[1])].shape);
  const Strides sb(plan_.steps[static_cast<size_t>(step.in[2])].shape);
  double* da = gradients(step.in[1]);
  double* db = gradients(step.in[2]);
  for_cells(step.shape, [&](int64_t i, int64_t r, int64_t c) {
    const bool first = condition[sc.at(r, c)] != 0;
    if (first && da != nullptr) da[sa.at(r, c)] += dy[i];
    if (!first && db != nullptr) db[sb.at(r, c)] += dy[i];
  });
}

void Evaluation::back_copy(const Step& step, const double* dy) {
  double* dx = gradients(step.in[0]);
  if (dx == nullptr) return;
  dx += step.begin;
  for_cells(step.shape,
            [&](int64_t i, int64_t r, int64_t c) { dx[r * step.row_stride + c * step.col_stride] += dy[i]; });
}

void Evaluation::back_concat(const Step& step, const double* dy) {
  int64_t begin = 0;
  for (const int part : step.parts) {
    const Shape& shape = plan_.steps[static_cast<size_t>(part)].shape;
    double* dx = gradients(part);
    const int64_t width = step.shape.cols();
    if (dx != nullptr) {
      for_cells(shape, [&](int64_t i, int64_t r, int64_t c) {
        dx[i] += dy[step.index == 0 ? (begin + r) * width + c : r * width + begin + c];
      });
    }
    begin += step.index == 0 ? shape.rows() : shape.cols();
  }
}

void Evaluation::back_gather(const Step& step, const double* dy) {
  double* dx = gradients(step.in[0]);
  if (dx == nullptr) return;
  for_cells(step.shape, [&](int64_t i, int64_t r, int64_t c) { dx[gather_source(step, r, c)] += dy[i]; });
}

void Evaluation::back_reduce(const Step& step, const double* y, const double* dy) {
  double* dx = gradients(step.in[0]);
  if (dx == nullptr) return;
  const double* x = values(step.in[0]);
  const Line& line = step.line;
  for_lines(line, [&](int64_t number, int64_t begin) {
    switch (step.reduction) {
      case Reduction::kSum:
        for (int64_t i = 0; i < line.n; ++i) dx[begin + i * line.inner] += dy[number];
        return;
      case Reduction::kLogSumExp:
        for (int64_t i = 0; i < line.n; ++i) {
          const int64_t at = begin + i * line.inner;
          dx[at] += dy[number] * std::exp(x[at] - y[number]);
        }
        return;
      default:
        return share_among_ties(x + begin, dx + begin, line.n, line.inner, y[number], dy[number]);
    }
  });
}

void Evaluation::back_scan(const Step& step, const double* y, const double* dy) {
  double* dx = gradients(step.in[0]);
  if (dx == nullptr) return;
  for_lines(step.line, [&](int64_t, int64_t begin) {
    back_scan_line(step.scan, y + begin, dy + begin, dx + begin, step.line.n, step.line.inner);
  });
}

}  // namespace tuft::loss_graph
