// The arithmetic of Muon on one matrix: Newton-Schulz steps that move its singular values towards 1 (Jordan 2024).
// Products are summed over lanes by column number, in pieces of fixed width, so that a result is the same on every
// instruction set. Thread-safe, never fails.
#pragma once

#include <cstdint>
#include <vector>

namespace tuft::engine::native {

inline constexpr int kPieceColumns = 256;  // columns that are multiplied at a time

// The memory that a thread needs for matrices of up to `rows` rows.
class OrthogonalizeMemory {
 public:
  // Throws std::bad_alloc, and keeps what it had.
  void reserve(int rows);

  std::vector<float> piece;       // [rows][kPieceColumns]
  std::vector<double> gram;       // [rows][rows]
  std::vector<float> small;       // [rows][rows]
  std::vector<float> polynomial;  // [rows][rows]
};

inline constexpr int kNewtonSchulzSteps = 5;
// The polynomial a x + b x^3 + c x^5 of a step.
inline constexpr double kNewtonSchulz[3] = {3.4445, -4.7750, 2.0315};

// Replaces x, a matrix of rows x columns, by the result of the steps on x divided by its Frobenius norm, and scales it
// to the norm sqrt(min(rows, columns)). A matrix whose norm is below 1e-30 becomes zero. Requires that x is finite and
// that `memory` is reserved.
void orthogonalize(int rows, int64_t columns, float* x, OrthogonalizeMemory& memory);

// m += weight * (clip * g - m), and g = m.
void move_momentum(float weight, float clip, int64_t n, float* g, float* m);
// value -= size * x, and x = 0. Returns false if a value is not finite afterwards.
bool descend(float size, int64_t n, float* value, float* x);

}  // namespace tuft::engine::native
