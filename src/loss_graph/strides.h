// Walks over the cells and lines of arrays. Internal to the module.
#pragma once

#include <cstdint>

#include "loss_graph/plan.h"

namespace tuft::loss_graph {

// Locates the cell (row, column) of a broadcast result in an operand.
struct Strides {
  int64_t row = 0;
  int64_t col = 0;

  explicit Strides(const Shape& shape) : row(shape.rows() == 1 ? 0 : shape.cols()), col(shape.cols() == 1 ? 0 : 1) {}
  int64_t at(int64_t r, int64_t c) const { return r * row + c * col; }
};

// Calls visit(cell, row, column) for each cell, row by row.
template <typename Visit>
void for_cells(const Shape& shape, const Visit& visit) {
  const int64_t rows = shape.rows();
  const int64_t cols = shape.cols();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) visit(r * cols + c, r, c);
  }
}

// Calls visit(number of the line, its first element).
template <typename Visit>
void for_lines(const Line& line, const Visit& visit) {
  for (int64_t o = 0; o < line.outer; ++o) {
    for (int64_t k = 0; k < line.inner; ++k) visit(o * line.inner + k, o * line.n * line.inner + k);
  }
}

}  // namespace tuft::loss_graph
