#include "engine/native/ops/gemm_kernel.h"

#include <algorithm>

#include "engine/native/ops/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/native/ops/gemm_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/native/ops/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuft::engine::native {
namespace HWY_NAMESPACE {

int tile_rows_limit() {
  return kTileRows;
}

template <typename T>
void multiply_typed(const BlockArgs& args) {
  TileArgs tile;
  tile.k = args.k_end - args.k_begin;
  tile.b_panel_stride = args.b_panel_stride;
  tile.b_row_stride = args.b_row_stride;
  tile.c_stride = args.c_stride;
  tile.start = args.start;
  for (int t = args.tile_begin; t < args.tile_end; ++t) {
    const int first = tile_first_row(t, args.tiles, args.a_rows);
    const int rows = tile_first_row(t + 1, args.tiles, args.a_rows) - first;
    tile.a_stride = rows;
    const float* a = args.a + static_cast<ptrdiff_t>(first) * args.a_k + static_cast<ptrdiff_t>(args.k_begin) * rows;
    tile_strip(rows, args.columns, tile, a, static_cast<const T*>(args.b), args.c + first * args.c_stride, args.bias);
  }
}

void multiply(const BlockArgs& args) {
  if (args.b_bf16) {
    multiply_typed<uint16_t>(args);
  } else {
    multiply_typed<float>(args);
  }
}

void pack(const float* src, ptrdiff_t stride, int rows, int k, int tiles, int tile, float* packed) {
  const int first = tile_first_row(tile, tiles, rows);
  const int count = tile_first_row(tile + 1, tiles, rows) - first;
  pack_tile(src + first * stride, stride, count, k, packed + static_cast<ptrdiff_t>(first) * k);
}

void unpack(const uint16_t* w, int k, int panels, int k_begin, int k_end, float* dst) {
  const F32 d;
  for (int p = 0; p < panels; ++p) {
    const uint16_t* from = w + (static_cast<ptrdiff_t>(p) * k + k_begin) * kPanel;
    const ptrdiff_t count = static_cast<ptrdiff_t>(k_end - k_begin) * kPanel;
    for (ptrdiff_t i = 0; i < count; i += kLanes) hn::StoreU(load_b(d, from + i), d, dst + i);
    dst += count;
  }
}

// Transposes 16 inputs (one panel) of up to 16 outputs: src[i][n] to dst[n][i].
void transpose_square(const float* src, int outputs, float* dst) {
  if (outputs == kPanel) {
    for (int i = 0; i < kPanel; i += 4) {
      for (int n = 0; n < kPanel; n += 4) transpose4(src + i * kPanel + n, kPanel, dst + n * kPanel + i, kPanel);
    }
    return;
  }
  for (int n = 0; n < outputs; ++n) {
    for (int i = 0; i < kPanel; ++i) dst[n * kPanel + i] = src[i * kPanel + n];
  }
}

void transpose(const void* w, bool bf16, int k, int k_panel, int panels, int n_begin, int n_end, float* dst) {
  const F32 d;
  for (int p = 0; p < panels; ++p) {
    const int input = (k_panel + p) * kPanel;
    const int inputs = std::min(kPanel, k - input);
    for (int n = n_begin; n < n_end; n += kPanel) {
      const ptrdiff_t from = (static_cast<ptrdiff_t>(n / kPanel) * k + input) * kPanel;
      alignas(64) float square[kPanel * kPanel];
      const float* src = square;
      if (bf16) {
        const uint16_t* w16 = static_cast<const uint16_t*>(w) + from;
        for (int i = 0; i < inputs * kPanel; i += kLanes) hn::Store(load_b(d, w16 + i), d, square + i);
      } else if (inputs == kPanel) {
        src = static_cast<const float*>(w) + from;
      } else {
        std::copy_n(static_cast<const float*>(w) + from, inputs * kPanel, square);
      }
      std::fill(square + (src == square ? inputs : kPanel) * kPanel, square + kPanel * kPanel, 0.0F);
      const int outputs = std::min(kPanel, n_end - n);
      transpose_square(src, outputs, dst + static_cast<ptrdiff_t>(n - n_begin) * kPanel);
    }
    dst += static_cast<ptrdiff_t>(n_end - n_begin) * kPanel;
  }
}

void outer(const float* p, ptrdiff_t p_stride, int p_columns, const float* q, ptrdiff_t q_stride, int q_columns,
           int rows, float* g, ptrdiff_t g_stride) {
  TileArgs args;
  args.k = rows;
  args.a_stride = p_stride;
  args.b_panel_stride = kPanel;
  args.b_row_stride = q_stride;
  args.c_stride = g_stride;
  args.start = Start::kAdd;
  for (int i = 0; i < p_columns; i += kTileRows) {
    tile_strip(std::min(kTileRows, p_columns - i), q_columns, args, p + i, q, g + i * g_stride, nullptr);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tuft::engine::native
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tuft::engine::native {

HWY_EXPORT(tile_rows_limit);
HWY_EXPORT(multiply);
HWY_EXPORT(pack);
HWY_EXPORT(unpack);
HWY_EXPORT(transpose);
HWY_EXPORT(outer);

int tile_rows_max() {
  static const int rows = HWY_DYNAMIC_DISPATCH(tile_rows_limit)();
  return rows;
}

void multiply_block(const BlockArgs& args) {
  HWY_DYNAMIC_DISPATCH(multiply)(args);
}

void pack_rows(const float* src, ptrdiff_t stride, int rows, int k, int tiles, int tile, float* packed) {
  HWY_DYNAMIC_DISPATCH(pack)(src, stride, rows, k, tiles, tile, packed);
}

void unpack_bf16(const uint16_t* w, int k, int panels, int k_begin, int k_end, float* dst) {
  HWY_DYNAMIC_DISPATCH(unpack)(w, k, panels, k_begin, k_end, dst);
}

void transpose_panels(const void* w, bool bf16, int k, int k_panel, int panels, int n_begin, int n_end, float* dst) {
  HWY_DYNAMIC_DISPATCH(transpose)(w, bf16, k, k_panel, panels, n_begin, n_end, dst);
}

void accumulate_outer(const float* p, ptrdiff_t p_stride, int p_columns, const float* q, ptrdiff_t q_stride,
                      int q_columns, int rows, float* g, ptrdiff_t g_stride) {
  HWY_DYNAMIC_DISPATCH(outer)(p, p_stride, p_columns, q, q_stride, q_columns, rows, g, g_stride);
}

}  // namespace tuft::engine::native
#endif
