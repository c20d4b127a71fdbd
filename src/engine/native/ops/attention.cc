#include "engine/native/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/native/ops/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/native/ops/attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/native/ops/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuft::engine::native {
namespace HWY_NAMESPACE {

constexpr int kGradientRows = 48;  // query rows per block of the gradient

int round_up(int n) {
  return (n + kPanel - 1) / kPanel * kPanel;
}

// Sets x = exp(x * scale - base) for the first `length` columns, 0 for the rest of `padded`. Returns the sum.
float exponentials(float* x, int length, int padded, float scale, float base) {
  const F32 d;
  const auto factor = hn::Set(d, scale);
  const auto shift = hn::Set(d, base);
  std::fill(x + length, x + round_up(length), -INFINITY);
  Lanes lanes(0.0F);
  for (int i = 0; i < length; i += kPanel) {
    for (int v = 0; v < kVectors; ++v) {
      float* at = x + i + v * kLanes;
      const auto value = hn::Exp(d, hn::MulSub(hn::LoadU(d, at), factor, shift));
      lanes.v[v] = hn::Add(lanes.v[v], value);
      hn::StoreU(value, d, at);
    }
  }
  std::fill(x + round_up(length), x + std::max(padded, round_up(length)), 0.0F);
  return lanes.sum();
}

// Computes scores[row][position] for all positions below `length`, in whole panels.
void score(const float* packed_q, int rows, const AttentionTile& tile, int length, int stride, float* scores) {
  TileArgs args;
  args.k = tile.head_dim;
  args.a_stride = rows;
  args.b_panel_stride = static_cast<ptrdiff_t>(tile.head_dim) * kPanel;
  args.b_row_stride = kPanel;
  args.c_stride = stride;
  for (int begin = 0; begin < length; begin += kKvBlock) {
    const int columns = round_up(std::min(kKvBlock, length - begin));
    tile_strip(rows, columns, args, packed_q, tile.kv.blocks[begin / kKvBlock] + tile.kv.k_offset, scores + begin,
               static_cast<const float*>(nullptr));
  }
}

void attend_tile(const AttentionTile& tile) {
  const int rows = tile.rows;
  const int head_dim = tile.head_dim;
  const int length = *std::max_element(tile.length, tile.length + rows);
  const int stride = round_up(length) + kPanel;
  float* packed_q = tile.scratch;
  float* scores = packed_q + static_cast<ptrdiff_t>(rows) * head_dim;
  float* weights = scores + static_cast<ptrdiff_t>(rows) * stride;
  float* sums = weights + static_cast<ptrdiff_t>(rows) * stride;
  for (int i = 0; i < rows; ++i) {
    for (int k = 0; k < head_dim; ++k) packed_q[k * rows + i] = tile.q[i][k];
  }
  score(packed_q, rows, tile, length, stride, scores);
  float total[kAttentionRows];
  for (int i = 0; i < rows; ++i) {
    float* row = scores + static_cast<ptrdiff_t>(i) * stride;
    const float base = row_max(row, tile.length[i]) * tile.scale;
    total[i] = exponentials(row, tile.length[i], length, tile.scale, base);
    if (tile.logsumexp[i] != nullptr) *tile.logsumexp[i] = base + std::log(total[i]);
  }
  pack_tile(scores, stride, rows, length, weights);
  TileArgs args;
  args.a_stride = rows;
  args.b_panel_stride = kPanel;
  args.b_row_stride = head_dim;
  args.c_stride = head_dim;
  for (int begin = 0; begin < length; begin += kKvBlock) {
    args.k = std::min(kKvBlock, length - begin);
    args.start = begin == 0 ? Start::kZero : Start::kAdd;
    tile_strip(rows, head_dim, args, weights + static_cast<ptrdiff_t>(begin) * rows,
               tile.kv.blocks[begin / kKvBlock] + tile.kv.v_offset, sums, static_cast<const float*>(nullptr));
  }
  for (int i = 0; i < rows; ++i) {
    const float inverse = 1.0F / total[i];
    for (int k = 0; k < head_dim; ++k) tile.out[i][k] = sums[i * head_dim + k] * inverse;
  }
}

// The scratch memory of one key-value head's gradient, divided from the caller's memory.
struct GradientScratch {
  float* k_panels;
  float* v_panels;
  float* k_rows;
  float* left;     // a packed tile of queries or of score gradients
  float* weights;  // [kGradientRows][stride]
  float* slopes;   // [kGradientRows][stride]
  int stride;

  GradientScratch(float* memory, int length, int head_dim) : stride(round_up(length) + kPanel) {
    const ptrdiff_t rows = static_cast<ptrdiff_t>(round_up(length)) * head_dim;
    k_panels = memory;
    v_panels = k_panels + rows;
    k_rows = v_panels + rows;
    left = k_rows + rows;
    weights = left + static_cast<ptrdiff_t>(kAttentionRows) * std::max(head_dim, stride);
    slopes = weights + static_cast<ptrdiff_t>(kGradientRows) * stride;
  }
};

// Copies rows of src to panels [position / 16][head_dim][16]; the last panel is padded with zeros.
void panels_of(const float* src, ptrdiff_t src_stride, int length, int head_dim, float* panels) {
  for (int begin = 0; begin < length; begin += kPanel) {
    const int count = std::min(kPanel, length - begin);
    const float* rows = src + begin * src_stride;
    if (count == kPanel) {
      pack_tile(rows, src_stride, kPanel, head_dim, panels);
    } else {
      std::fill(panels, panels + head_dim * kPanel, 0.0F);
      for (int i = 0; i < count; ++i) {
        for (int k = 0; k < head_dim; ++k) panels[k * kPanel + i] = rows[i * src_stride + k];
      }
    }
    panels += head_dim * kPanel;
  }
}

// Computes weights and score gradients of rows [first, first + rows) of one head, and then their share of dq.
void gradient_tile(const AttentionGradient& args, int head, int first, int rows, const GradientScratch& scratch,
                   float* weights, float* slopes) {
  const int head_dim = args.head_dim;
  const int columns = round_up(first + rows);
  const ptrdiff_t at = first * args.q_stride + static_cast<ptrdiff_t>(head) * head_dim;
  TileArgs tile;
  tile.k = head_dim;
  tile.a_stride = rows;
  tile.b_panel_stride = static_cast<ptrdiff_t>(head_dim) * kPanel;
  tile.b_row_stride = kPanel;
  tile.c_stride = scratch.stride;
  pack_tile(args.q + at, args.q_stride, rows, head_dim, scratch.left);
  tile_strip(rows, columns, tile, scratch.left, scratch.k_panels, weights, static_cast<const float*>(nullptr));
  pack_tile(args.dout + at, args.q_stride, rows, head_dim, scratch.left);
  tile_strip(rows, columns, tile, scratch.left, scratch.v_panels, slopes, static_cast<const float*>(nullptr));
  for (int i = 0; i < rows; ++i) {
    float* weight = weights + static_cast<ptrdiff_t>(i) * scratch.stride;
    float* slope = slopes + static_cast<ptrdiff_t>(i) * scratch.stride;
    const float* out = args.out + at + i * args.q_stride;
    const float* dout = args.dout + at + i * args.q_stride;
    float along = 0;
    for (int k = 0; k < head_dim; ++k) along += out[k] * dout[k];
    exponentials(weight, first + i + 1, scratch.stride, args.scale,
                 args.logsumexp[(first + i) * args.logsumexp_stride + head]);
    for (int t = 0; t < columns; ++t) slope[t] = weight[t] * (slope[t] - along) * args.scale;
    std::fill(slope + columns, slope + scratch.stride, 0.0F);
  }
  const int length = first + rows;
  pack_tile(slopes, scratch.stride, rows, length, scratch.left);
  tile.k = length;
  tile.b_panel_stride = kPanel;
  tile.b_row_stride = head_dim;
  tile.c_stride = args.q_stride;
  tile_strip(rows, head_dim, tile, scratch.left, scratch.k_rows, args.dq + at, static_cast<const float*>(nullptr));
}

void outer_rows(const float* p, ptrdiff_t p_stride, int p_columns, const float* q, ptrdiff_t q_stride, int q_columns,
                int rows, float* g, ptrdiff_t g_stride) {
  TileArgs args;
  args.k = rows;
  args.a_stride = p_stride;
  args.b_panel_stride = kPanel;
  args.b_row_stride = q_stride;
  args.c_stride = g_stride;
  args.start = Start::kAdd;
  for (int i = 0; i < p_columns; i += kTileRows) {
    tile_strip(std::min(kTileRows, p_columns - i), q_columns, args, p + i, q, g + i * g_stride,
               static_cast<const float*>(nullptr));
  }
}

void gradient(const AttentionGradient& args) {
  const int head_dim = args.head_dim;
  const GradientScratch scratch(args.scratch, args.length, head_dim);
  panels_of(args.k, args.kv_stride, args.length, head_dim, scratch.k_panels);
  panels_of(args.v, args.kv_stride, args.length, head_dim, scratch.v_panels);
  for (int t = 0; t < args.length; ++t) {
    std::copy_n(args.k + t * args.kv_stride, head_dim, scratch.k_rows + static_cast<ptrdiff_t>(t) * head_dim);
    std::fill_n(args.dk + t * args.kv_stride, head_dim, 0.0F);
    std::fill_n(args.dv + t * args.kv_stride, head_dim, 0.0F);
  }
  for (int head = 0; head < args.query_heads; ++head) {
    for (int block = 0; block < args.length; block += kGradientRows) {
      const int rows = std::min(kGradientRows, args.length - block);
      for (int i = 0; i < rows; i += kTileRows) {
        const ptrdiff_t offset = static_cast<ptrdiff_t>(i) * scratch.stride;
        gradient_tile(args, head, block + i, std::min(kTileRows, rows - i), scratch, scratch.weights + offset,
                      scratch.slopes + offset);
      }
      const ptrdiff_t at = block * args.q_stride + static_cast<ptrdiff_t>(head) * head_dim;
      outer_rows(scratch.weights, scratch.stride, block + rows, args.dout + at, args.q_stride, head_dim, rows, args.dv,
                 args.kv_stride);
      outer_rows(scratch.slopes, scratch.stride, block + rows, args.q + at, args.q_stride, head_dim, rows, args.dk,
                 args.kv_stride);
    }
  }
}

size_t scratch_floats(int head_dim, int length_max) {
  const size_t stride = static_cast<size_t>(round_up(length_max)) + kPanel;
  return kAttentionRows * (2 * static_cast<size_t>(head_dim) + 2 * stride) + 64;
}

size_t gradient_floats(int head_dim, int length) {
  const size_t stride = static_cast<size_t>(round_up(length)) + kPanel;
  return 3 * static_cast<size_t>(round_up(length)) * static_cast<size_t>(head_dim) +
         kAttentionRows * std::max(static_cast<size_t>(head_dim), stride) + 2 * kGradientRows * stride + 64;
}

}  // namespace HWY_NAMESPACE
}  // namespace tuft::engine::native
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tuft::engine::native {

HWY_EXPORT(attend_tile);
HWY_EXPORT(gradient);
HWY_EXPORT(scratch_floats);
HWY_EXPORT(gradient_floats);

size_t attention_scratch(int head_dim, int length_max) {
  return HWY_DYNAMIC_DISPATCH(scratch_floats)(head_dim, length_max);
}
size_t attention_gradient_scratch(int head_dim, int length) {
  return HWY_DYNAMIC_DISPATCH(gradient_floats)(head_dim, length);
}
void attend(const AttentionTile& tile) {
  HWY_DYNAMIC_DISPATCH(attend_tile)(tile);
}
void attend_backward(const AttentionGradient& args) {
  HWY_DYNAMIC_DISPATCH(gradient)(args);
}

}  // namespace tuft::engine::native
#endif
