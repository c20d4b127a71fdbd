// The only code that sums products: a tile of C of MR rows by NP panels of 16 columns, kept in registers. Every element
// of C is one chain of fused multiply-adds in ascending k, whatever the shape of the tile, so that a result depends on
// its own row and column only. All code above (batching, blocking, threads) relies on that.
#if defined(TUFT_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUFT_TILE_INL_H
#undef TUFT_TILE_INL_H
#else
#define TUFT_TILE_INL_H
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "engine/native/ops/gemm_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace tuft::engine::native {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
constexpr int kVectors = kPanel / kLanes;  // per panel
// Rows of a full tile, and the panels that it spans: as many accumulators as fit into the registers.
constexpr int kTileRows = kLanes == 16 ? 12 : 6;
constexpr int panels_for(int rows) {
  return rows == 1 ? 4 : (rows * kVectors * 2 <= (kLanes == 16 ? 24 : 12) ? 2 : 1);
}

HWY_INLINE hn::Vec<F32> load_b(F32 d, const float* b) {
  return hn::LoadU(d, b);
}
HWY_INLINE hn::Vec<F32> load_b(F32 d, const uint16_t* b) {
  const hn::Rebind<uint16_t, F32> d16;
  const hn::RebindToUnsigned<F32> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, b))));
}

// c[i][p * 16 + j] (+)= sum over k of a[k * a_stride + i] * b[p * panel_stride + k * row_stride + j].
// Starts from `bias` (of the first column), from c, or from zero.
template <int MR, int NP, typename T>
HWY_NOINLINE void tile(const TileArgs& args, const float* HWY_RESTRICT a, const T* HWY_RESTRICT b,
                       float* HWY_RESTRICT c, const float* HWY_RESTRICT bias) {
  constexpr int kWide = NP * kVectors;
  const F32 d;
  hn::Vec<F32> acc[MR][kWide];
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kWide; ++v) {
      acc[i][v] = args.start == Start::kZero   ? hn::Zero(d)
                  : args.start == Start::kBias ? hn::LoadU(d, bias + v * kLanes)
                                               : hn::LoadU(d, c + i * args.c_stride + v * kLanes);
    }
  }
  const int k_count = args.k;
  const ptrdiff_t panel_stride = args.b_panel_stride;
  const ptrdiff_t row_stride = args.b_row_stride;
  const ptrdiff_t a_stride = args.a_stride;
  for (int k = 0; k < k_count; ++k) {
    hn::Vec<F32> right[kWide];
#pragma GCC unroll 16
    for (int v = 0; v < kWide; ++v) right[v] = load_b(d, b + (v / kVectors) * panel_stride + (v % kVectors) * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      const auto left = hn::Set(d, a[i]);
#pragma GCC unroll 16
      for (int v = 0; v < kWide; ++v) acc[i][v] = hn::MulAdd(left, right[v], acc[i][v]);
    }
    a += a_stride;
    b += row_stride;
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kWide; ++v) hn::StoreU(acc[i][v], d, c + i * args.c_stride + v * kLanes);
  }
}

template <int NP, typename T>
HWY_INLINE void tile_rows(int rows, const TileArgs& args, const float* a, const T* b, float* c, const float* bias) {
  switch (rows) {
#define TUFT_TILE_CASE(n)                                                                              \
  case n:                                                                                              \
    if constexpr ((n) <= kTileRows && NP <= panels_for(n)) return tile<n, NP, T>(args, a, b, c, bias); \
    break;
    TUFT_TILE_CASE(1)
    TUFT_TILE_CASE(2)
    TUFT_TILE_CASE(3)
    TUFT_TILE_CASE(4)
    TUFT_TILE_CASE(5)
    TUFT_TILE_CASE(6)
    TUFT_TILE_CASE(7)
    TUFT_TILE_CASE(8)
    TUFT_TILE_CASE(9)
    TUFT_TILE_CASE(10)
    TUFT_TILE_CASE(11)
    TUFT_TILE_CASE(12)
#undef TUFT_TILE_CASE
  }
}

// Computes a panel with fewer than 16 columns of C; the surplus goes to a scratch tile.
template <typename T>
HWY_INLINE void tile_edge(int rows, int columns, const TileArgs& args, const float* a, const T* b, float* c,
                          const float* bias) {
  alignas(64) float scratch[kTileRows * kPanel] = {};
  TileArgs inner = args;
  inner.c_stride = kPanel;
  inner.start = Start::kAdd;
  for (int i = 0; i < rows && args.start != Start::kZero; ++i) {
    const float* from = args.start == Start::kBias ? bias : c + i * args.c_stride;
    for (int j = 0; j < columns; ++j) scratch[i * kPanel + j] = from[j];
  }
  tile_rows<1>(rows, inner, a, b, scratch, nullptr);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) c[i * args.c_stride + j] = scratch[i * kPanel + j];
  }
}

// Computes at most kTileRows rows by any number of columns.
template <typename T>
HWY_INLINE void tile_strip(int rows, int columns, const TileArgs& args, const float* a, const T* b, float* c,
                           const float* bias) {
  int column = 0;
  while (columns - column >= kPanel) {
    const int panels = (columns - column) / kPanel;
    int taken = 1;
    if (rows == 1 && panels >= 4) {
      tile_rows<4>(rows, args, a, b, c + column, bias + column);
      taken = 4;
    } else if (panels >= 2 && panels_for(rows) >= 2) {
      tile_rows<2>(rows, args, a, b, c + column, bias + column);
      taken = 2;
    } else {
      tile_rows<1>(rows, args, a, b, c + column, bias + column);
    }
    column += taken * kPanel;
    b += taken * args.b_panel_stride;
  }
  if (column < columns) tile_edge(rows, columns - column, args, a, b, c + column, bias + column);
}

// Transposes four rows of four values.
HWY_INLINE void transpose4(const float* src, ptrdiff_t src_stride, float* dst, ptrdiff_t dst_stride) {
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<double, 2> d64;
  const auto r0 = hn::LoadU(d, src);
  const auto r1 = hn::LoadU(d, src + src_stride);
  const auto r2 = hn::LoadU(d, src + 2 * src_stride);
  const auto r3 = hn::LoadU(d, src + 3 * src_stride);
  const auto t0 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
  const auto t1 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
  const auto t2 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
  const auto t3 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, t0, t1)), d, dst);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, t0, t1)), d, dst + dst_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, t2, t3)), d, dst + 2 * dst_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, t2, t3)), d, dst + 3 * dst_stride);
}

// Packs a tile: dst[k * rows + i] = src[i * stride + k].
HWY_INLINE void pack_tile(const float* HWY_RESTRICT src, ptrdiff_t stride, int rows, int k_count,
                          float* HWY_RESTRICT dst) {
  int i = 0;
  for (; i + 4 <= rows; i += 4) {
    int k = 0;
    for (; k + 4 <= k_count; k += 4) transpose4(src + i * stride + k, stride, dst + k * rows + i, rows);
    for (; k < k_count; ++k) {
      for (int j = i; j < i + 4; ++j) dst[k * rows + j] = src[j * stride + k];
    }
  }
  for (; i < rows; ++i) {
    for (int k = 0; k < k_count; ++k) dst[k * rows + i] = src[i * stride + k];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tuft::engine::native
HWY_AFTER_NAMESPACE();

#endif
