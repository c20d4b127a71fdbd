#include "engine/native/ops/orthogonalize.h"

#include <cmath>

#include "engine/native/ops/adam.h"
#include "engine/native/ops/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/native/ops/orthogonalize.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/native/ops/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuft::engine::native {
namespace HWY_NAMESPACE {

constexpr int kBlock = 4;  // rows that are computed together

// Copies up to kPieceColumns columns of x, padded with zeros.
void copy_piece(int rows, int64_t columns, const float* x, int64_t begin, float* piece) {
  const int64_t left = columns - begin;
  const int count = static_cast<int>(left < kPieceColumns ? left : kPieceColumns);
  for (int row = 0; row < rows; ++row) {
    const float* from = x + row * columns + begin;
    float* to = piece + static_cast<ptrdiff_t>(row) * kPieceColumns;
    for (int i = 0; i < count; ++i) to[i] = from[i];
    for (int i = count; i < kPieceColumns; ++i) to[i] = 0.0F;
  }
}

// gram += piece piece^T, of which the lower half is written.
void add_gram(int rows, const float* piece, double* gram) {
  const F32 d;
  for (int i = 0; i < rows; ++i) {
    const float* left = piece + static_cast<ptrdiff_t>(i) * kPieceColumns;
    for (int j = 0; j <= i; j += kBlock) {
      const float* right[kBlock];
      Lanes sums[kBlock] = {Lanes(0.0F), Lanes(0.0F), Lanes(0.0F), Lanes(0.0F)};
      for (int b = 0; b < kBlock; ++b) {
        right[b] = piece + static_cast<ptrdiff_t>(j + b < rows ? j + b : rows - 1) * kPieceColumns;
      }
      for (int c = 0; c < kPieceColumns; c += kPanel) {
        for (int v = 0; v < kVectors; ++v) {
          const auto x = hn::LoadU(d, left + c + v * kLanes);
          for (int b = 0; b < kBlock; ++b) {
            sums[b].v[v] = hn::MulAdd(x, hn::LoadU(d, right[b] + c + v * kLanes), sums[b].v[v]);
          }
        }
      }
      for (int b = 0; b < kBlock && j + b <= i; ++b) {
        gram[static_cast<ptrdiff_t>(i) * rows + j + b] += static_cast<double>(sums[b].sum());
      }
    }
  }
}

// Writes the columns [begin, begin + kPieceColumns) of matrix * piece to `to`, a matrix of rows x columns.
void multiply_piece(int rows, int64_t columns, const float* matrix, const float* piece, int64_t begin, float* to) {
  const F32 d;
  const int64_t left = columns - begin;
  const int count = static_cast<int>(left < kPieceColumns ? left : kPieceColumns);
  for (int row = 0; row < rows; row += kBlock) {
    const int block = rows - row < kBlock ? rows - row : kBlock;
    for (int c = 0; c < count; c += kPanel) {
      Lanes sums[kBlock] = {Lanes(0.0F), Lanes(0.0F), Lanes(0.0F), Lanes(0.0F)};
      for (int k = 0; k < rows; ++k) {
        const float* from = piece + static_cast<ptrdiff_t>(k) * kPieceColumns + c;
        for (int v = 0; v < kVectors; ++v) {
          const auto x = hn::LoadU(d, from + v * kLanes);
          for (int b = 0; b < kBlock; ++b) {
            const int at = row + (b < block ? b : 0);
            const auto factor = hn::Set(d, matrix[static_cast<ptrdiff_t>(at) * rows + k]);
            sums[b].v[v] = hn::MulAdd(factor, x, sums[b].v[v]);
          }
        }
      }
      for (int b = 0; b < block; ++b) {
        alignas(64) float lane[kPanel];
        for (int v = 0; v < kVectors; ++v) hn::Store(sums[b].v[v], d, lane + v * kLanes);
        float* out = to + (row + b) * columns + begin + c;
        for (int i = 0; i < kPanel && c + i < count; ++i) out[i] = lane[i];
      }
    }
  }
}

// to = matrix * x; `to` may be x.
void multiply(int rows, int64_t columns, const float* matrix, const float* x, float* piece, float* to) {
  for (int64_t begin = 0; begin < columns; begin += kPieceColumns) {
    copy_piece(rows, columns, x, begin, piece);
    multiply_piece(rows, columns, matrix, piece, begin, to);
  }
}

void scale(int64_t n, float factor, float* x) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

// x = (a I + b S + c S^2) x with S = x x^T.
void newton_schulz_step(int rows, int64_t columns, float* x, OrthogonalizeMemory& memory) {
  const int cells = rows * rows;
  double* gram = memory.gram.data();
  float* small = memory.small.data();
  float* polynomial = memory.polynomial.data();
  float* piece = memory.piece.data();
  for (int i = 0; i < cells; ++i) gram[i] = 0.0;
  for (int64_t begin = 0; begin < columns; begin += kPieceColumns) {
    copy_piece(rows, columns, x, begin, piece);
    add_gram(rows, piece, gram);
  }
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < rows; ++j)
      small[i * rows + j] = static_cast<float>(i < j ? gram[j * rows + i] : gram[i * rows + j]);
  }
  multiply(rows, rows, small, small, piece, polynomial);
  for (int i = 0; i < cells; ++i) {
    const float linear = static_cast<float>(kNewtonSchulz[1]) * small[i];
    polynomial[i] = std::fma(static_cast<float>(kNewtonSchulz[2]), polynomial[i], linear);
  }
  for (int i = 0; i < rows; ++i) polynomial[i * rows + i] += static_cast<float>(kNewtonSchulz[0]);
  multiply(rows, columns, polynomial, x, piece, x);
}

void orthogonal(int rows, int64_t columns, float* x, OrthogonalizeMemory& memory) {
  constexpr double kNormMin = 1e-30;
  const int64_t n = rows * columns;
  const double before = sum_of_squares(x, n);
  if (!(before > kNormMin * kNormMin)) return scale(n, 0.0F, x);
  scale(n, static_cast<float>(1.0 / std::sqrt(before)), x);
  for (int i = 0; i < kNewtonSchulzSteps; ++i) newton_schulz_step(rows, columns, x, memory);
  const double after = sum_of_squares(x, n);
  const double wanted = static_cast<double>(rows < columns ? rows : columns);
  scale(n, static_cast<float>(std::sqrt(wanted / after)), x);
}

void momentum(float weight, float clip, int64_t n, float* gradient, float* mean) {
  const F32 d;
  const auto body = [&](float* g, float* m) HWY_ATTR {
    const auto old = hn::LoadU(d, m);
    const auto step = hn::Sub(hn::Mul(hn::LoadU(d, g), hn::Set(d, clip)), old);
    const auto moved = hn::MulAdd(hn::Set(d, weight), step, old);
    hn::StoreU(moved, d, m);
    hn::StoreU(moved, d, g);
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(gradient + i, mean + i);
  if (i == n) return;
  const int count = static_cast<int>(n - i);
  Tail g(gradient + i, count, 0.0F);
  Tail m(mean + i, count, 0.0F);
  body(g.value, m.value);
  for (int j = 0; j < count; ++j) gradient[i + j] = mean[i + j] = m.value[j];
}

bool move_values(float size, int64_t n, float* value, float* direction) {
  const F32 d;
  auto nothing = hn::Zero(d);  // adding x * 0 finds values that are not finite
  const auto body = [&](float* w, float* x) HWY_ATTR {
    const auto moved = hn::NegMulAdd(hn::Set(d, size), hn::LoadU(d, x), hn::LoadU(d, w));
    nothing = hn::MulAdd(moved, hn::Zero(d), nothing);
    hn::StoreU(moved, d, w);
    hn::StoreU(hn::Zero(d), d, x);
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(value + i, direction + i);
  if (i < n) {
    const int count = static_cast<int>(n - i);
    Tail w(value + i, count, 0.0F);
    Tail x(direction + i, count, 0.0F);
    body(w.value, x.value);
    for (int j = 0; j < count; ++j) {
      value[i + j] = w.value[j];
      direction[i + j] = 0.0F;
    }
  }
  return hn::AllTrue(d, hn::Eq(nothing, hn::Zero(d)));
}

}  // namespace HWY_NAMESPACE
}  // namespace tuft::engine::native
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tuft::engine::native {

HWY_EXPORT(orthogonal);
HWY_EXPORT(momentum);
HWY_EXPORT(move_values);

void OrthogonalizeMemory::reserve(int rows) {
  const auto count = static_cast<size_t>(rows);
  if (gram.size() >= count * count) return;
  std::vector<float> new_piece(count * size_t{kPieceColumns});
  std::vector<double> new_gram(count * count);
  std::vector<float> new_small(count * count);
  polynomial.resize(count * count);
  piece.swap(new_piece);
  gram.swap(new_gram);
  small.swap(new_small);
}

void orthogonalize(int rows, int64_t columns, float* x, OrthogonalizeMemory& memory) {
  HWY_DYNAMIC_DISPATCH(orthogonal)(rows, columns, x, memory);
}

void move_momentum(float weight, float clip, int64_t n, float* g, float* m) {
  HWY_DYNAMIC_DISPATCH(momentum)(weight, clip, n, g, m);
}

bool descend(float size, int64_t n, float* value, float* x) {
  return HWY_DYNAMIC_DISPATCH(move_values)(size, n, value, x);
}

}  // namespace tuft::engine::native
#endif
