// Causal attention of a tile of query rows over cached keys and values, and its gradient over a whole sequence. A row
// attends to positions [0, its length). All scores of a row are kept, and every sum runs in ascending position, so a
// row's result does not depend on how its sequence was divided into passes. Thread-safe, never allocates, never fails.
#pragma once

#include <cstddef>

#include "engine/native/ops/gemm_kernel.h"

namespace tuft::engine::native {

inline constexpr int kKvBlock = 64;  // positions per block of the cache

// Keys and values of one layer and head, in blocks of kKvBlock positions: keys in panels [position / 16][head_dim][16]
// at k_offset, values [position][head_dim] at v_offset of each block.
struct KvView {
  const float* const* blocks = nullptr;
  ptrdiff_t k_offset = 0;
  ptrdiff_t v_offset = 0;
};

// Returns the number of floats of one layer and head in a block.
inline constexpr ptrdiff_t kv_head_floats(int head_dim) {
  return 2 * static_cast<ptrdiff_t>(kKvBlock) * head_dim;
}

// Writes one position into its block. `k` and `v` point to the layer and head in the block.
inline void store_kv(const float* key, const float* value, int head_dim, int position, float* k, float* v) {
  const int at = position % kKvBlock;
  float* column = k + static_cast<ptrdiff_t>(at / kPanel) * head_dim * kPanel + at % kPanel;
  for (int i = 0; i < head_dim; ++i) column[static_cast<ptrdiff_t>(i) * kPanel] = key[i];
  for (int i = 0; i < head_dim; ++i) v[static_cast<ptrdiff_t>(at) * head_dim + i] = value[i];
}

inline constexpr int kAttentionRows = 12;  // the most rows of a tile; tile_rows_max() fit the registers

struct AttentionTile {
  int rows = 0;
  const float* q[kAttentionRows] = {};  // head_dim values each
  int length[kAttentionRows] = {};
  float* out[kAttentionRows] = {};
  float* logsumexp[kAttentionRows] = {};  // for the gradient; null: not requested
  KvView kv;
  int head_dim = 0;
  float scale = 1.0F;
  float* scratch = nullptr;  // attention_scratch() floats
};

size_t attention_scratch(int head_dim, int length_max);
void attend(const AttentionTile& tile);

// The gradient of all query heads that share one key-value head, over one sequence of `length` positions. Row t of an
// operand starts at pointer + t * stride, and query head h at h * head_dim from there.
struct AttentionGradient {
  int length = 0;
  int head_dim = 0;
  int query_heads = 1;
  float scale = 1.0F;
  const float* q = nullptr;
  const float* out = nullptr;
  const float* dout = nullptr;
  ptrdiff_t q_stride = 0;  // of q, out, dout and dq
  const float* k = nullptr;
  const float* v = nullptr;
  ptrdiff_t kv_stride = 0;           // of k, v, dk and dv
  const float* logsumexp = nullptr;  // of position t and head h: logsumexp[t * logsumexp_stride + h]
  ptrdiff_t logsumexp_stride = 0;
  float* dq = nullptr;       // written
  float* dk = nullptr;       // written
  float* dv = nullptr;       // written
  float* scratch = nullptr;  // attention_gradient_scratch() floats
};

size_t attention_gradient_scratch(int head_dim, int length);
void attend_backward(const AttentionGradient& args);

}  // namespace tuft::engine::native
