// Blocks of matrix products for one thread; engine/native/gemm.h combines them. The functions only compute on the
// caller's memory: thread-safe, never allocate, never fail.
//
// A left operand is packed in tiles: tile t of `tiles` holds rows [t * rows / tiles, (t + 1) * rows / tiles), with k as
// the outer dimension. A right operand is read in panels of 16 columns: b[panel * panel_stride + k * row_stride +
// column]. Both the packed weights ([panel][k][16]) and plain row-major matrices ([k][n], panel_stride 16) have that
// form. Kernels load whole panels: a right operand needs 64 readable bytes past its end.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tuft::engine::native {

inline constexpr int kPanel = 16;

enum class Start : uint8_t { kZero, kBias, kAdd };  // the value that a product is added to

struct TileArgs {
  int k = 0;
  ptrdiff_t a_stride = 0;
  ptrdiff_t b_panel_stride = 0;
  ptrdiff_t b_row_stride = 0;
  ptrdiff_t c_stride = 0;
  Start start = Start::kZero;
};

struct BlockArgs {
  const float* a = nullptr;  // packed, all tiles
  int a_rows = 0;
  int a_k = 0;  // of the whole packed operand
  int tiles = 1;
  int tile_begin = 0;  // tiles to compute
  int tile_end = 1;
  int k_begin = 0;  // range of k to sum
  int k_end = 0;
  const void* b = nullptr;  // at k_begin of the block's first panel
  bool b_bf16 = false;
  ptrdiff_t b_panel_stride = 0;
  ptrdiff_t b_row_stride = 0;
  float* c = nullptr;  // row 0 of the operand, first column of the block
  ptrdiff_t c_stride = 0;
  int columns = 0;
  const float* bias = nullptr;  // of the first column
  Start start = Start::kZero;
};

int tile_rows_max();
inline int tile_count(int rows) {
  return (rows + tile_rows_max() - 1) / tile_rows_max();
}
inline int tile_first_row(int tile, int tiles, int rows) {
  return static_cast<int>(static_cast<int64_t>(rows) * tile / tiles);
}

void multiply_block(const BlockArgs& args);

// Packs tile `tile` of row-major src [rows, k].
void pack_rows(const float* src, ptrdiff_t stride, int rows, int k, int tiles, int tile, float* packed);

// Converts panels of weights in [k_begin, k_end) to f32 [panel][k][16]; w points to the first panel, of stride k * 16.
void unpack_bf16(const uint16_t* w, int k, int panels, int k_begin, int k_end, float* dst);

// Transposes packed weights, for products with W instead of its transpose. dst[panel][n][16] receives inputs [16 *
// (k_panel + panel), + 16) of outputs [n_begin, n_end); n_begin is a multiple of 16. w is the whole packed matrix
// [ceil(n / 16)][k][16], f32 or bf16.
void transpose_panels(const void* w, bool bf16, int k, int k_panel, int panels, int n_begin, int n_end, float* dst);

// g[i * g_stride + j] += sum over rows m of p[m * p_stride + i] * q[m * q_stride + j], for i < p_columns and
// j < q_columns. q needs 64 readable bytes past its end.
void accumulate_outer(const float* p, ptrdiff_t p_stride, int p_columns, const float* q, ptrdiff_t q_stride,
                      int q_columns, int rows, float* g, ptrdiff_t g_stride);

}  // namespace tuft::engine::native
