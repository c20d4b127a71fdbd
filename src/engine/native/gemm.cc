#include "engine/native/gemm.h"

#include <algorithm>

namespace tuft::engine::native {
namespace {

constexpr int kPanelsPerTask = 4;
constexpr int kRowsOfSum = 512;  // k per block: a tile stays in the L1 cache, kPanelsPerTask panels in L2
constexpr int kTasksPerThread = 4;
// Below these sizes a second thread costs more than it saves.
constexpr size_t kSerialFloats = 16'384;
constexpr int64_t kSerialProducts = 32'768;

int panel_count(int columns) {
  return (columns + kPanel - 1) / kPanel;
}

bool products_below(std::span<const Sum> sums, int64_t limit) {
  int64_t count = 0;
  for (const Sum& sum : sums) {
    for (const Product& product : sum.products) {
      count += static_cast<int64_t>(product.left.rows) * product.right.k * sum.columns;
    }
  }
  return count < limit;
}

}  // namespace

Gemm::Gemm(ThreadPool& pool) : pool_(pool) {
  for (int i = 0; i < pool.threads(); ++i) {
    scratch_.emplace_back(static_cast<size_t>(kPanelsPerTask) * kRowsOfSum * kPanel);
  }
}

Left Gemm::pack(Arena& arena, const float* src, ptrdiff_t stride, int first_row, int rows, int k) {
  Left left{src, rows, k, first_row};
  if (rows <= 1) return left;
  float* packed = arena.take(static_cast<size_t>(rows) * static_cast<size_t>(k));
  left.data = packed;
  const int tiles = tile_count(rows);
  const auto pack_one = [&](int tile, int) { pack_rows(src, stride, rows, k, tiles, tile, packed); };
  if (static_cast<size_t>(rows) * static_cast<size_t>(k) < kSerialFloats) {
    for (int tile = 0; tile < tiles; ++tile) pack_one(tile, 0);
  } else {
    pool_.run(tiles, pack_one);
  }
  return left;
}

void Gemm::plan(std::span<const Sum> sums) {
  tasks_.clear();
  int panels = 0;
  for (const Sum& sum : sums) panels += panel_count(sum.columns);
  const int wanted = kTasksPerThread * pool_.threads();
  const int width = std::clamp(panels / wanted, 1, kPanelsPerTask);
  for (const Sum& sum : sums) {
    const int count = panel_count(sum.columns);
    // Only a sum of one product can be divided by rows: the tiles of several products end at different rows.
    int parts = 1;
    if (sum.products.size() == 1 && panels / width < wanted) {
      parts = std::clamp(wanted * width / panels, 1, tile_count(sum.products[0].left.rows));
    }
    for (int begin = 0; begin < count; begin += width) {
      for (int part = 0; part < parts; ++part) {
        tasks_.push_back({&sum, begin, std::min(begin + width, count), part, parts});
      }
    }
  }
}

void Gemm::multiply(std::span<const Sum> sums) {
  plan(sums);
  const auto run = [this](int task, int thread) { run_task(tasks_[static_cast<size_t>(task)], thread); };
  if (products_below(sums, kSerialProducts)) {
    for (size_t task = 0; task < tasks_.size(); ++task) run_task(tasks_[task], 0);
    return;
  }
  pool_.run(static_cast<int>(tasks_.size()), run);
}

void Gemm::run_task(const Task& task, int thread) {
  Start start = task.sum->add ? Start::kAdd : task.sum->bias != nullptr ? Start::kBias : Start::kZero;
  for (const Product& product : task.sum->products) {
    add_product(task, product, start, scratch_[static_cast<size_t>(thread)].data());
    start = Start::kAdd;
  }
}

void Gemm::add_product(const Task& task, const Product& product, Start start, float* scratch) const {
  const Right& right = product.right;
  const int column = task.panel_begin * kPanel;
  const int panels = task.panel_end - task.panel_begin;
  BlockArgs block;
  block.a = product.left.data;
  block.a_rows = product.left.rows;
  block.a_k = product.left.k;
  block.tiles = tile_count(product.left.rows);
  block.tile_begin = block.tiles * task.part / task.parts;
  block.tile_end = block.tiles * (task.part + 1) / task.parts;
  block.c = task.sum->c + product.left.first_row * task.sum->stride + column;
  block.c_stride = task.sum->stride;
  block.columns = std::min(panels * kPanel, task.sum->columns - column);
  block.bias = task.sum->bias == nullptr ? nullptr : task.sum->bias + column;
  block.start = start;
  const bool converted = right.bf16 && block.tile_end - block.tile_begin > 1;
  for (int k = 0; k < right.k; k += kRowsOfSum) {
    block.k_begin = k;
    block.k_end = std::min(k + kRowsOfSum, right.k);
    const ptrdiff_t depth = block.k_end - k;
    block.b = scratch;
    block.b_bf16 = false;
    block.b_panel_stride = depth * kPanel;
    block.b_row_stride = kPanel;
    const ptrdiff_t first = static_cast<ptrdiff_t>(task.panel_begin) * right.k * kPanel;
    if (right.form == Right::Form::kReverse) {
      transpose_panels(right.data, right.bf16, right.n, task.panel_begin, panels, k, block.k_end, scratch);
    } else if (right.form == Right::Form::kRowMajor) {
      block.b = static_cast<const float*>(right.data) + static_cast<ptrdiff_t>(k) * right.n + column;
      block.b_panel_stride = kPanel;
      block.b_row_stride = right.n;
    } else if (converted) {
      unpack_bf16(static_cast<const uint16_t*>(right.data) + first, right.k, panels, k, block.k_end, scratch);
    } else {
      const ptrdiff_t at = first + static_cast<ptrdiff_t>(k) * kPanel;
      block.b = right.bf16 ? static_cast<const void*>(static_cast<const uint16_t*>(right.data) + at)
                           : static_cast<const void*>(static_cast<const float*>(right.data) + at);
      block.b_bf16 = right.bf16;
      block.b_panel_stride = static_cast<ptrdiff_t>(right.k) * kPanel;
    }
    multiply_block(block);
    block.start = Start::kAdd;
  }
}

void Gemm::accumulate(std::span<const Outer> outers) {
  // One task is a strip of columns of all products. Adjacent ones with the same right operand process it piece by piece
  // in turn, so that it is read once; each result still receives its rows in order.
  constexpr int kStrip = 2 * kPanel;
  constexpr int kRows = 256;
  int strips = 0;
  for (const Outer& outer : outers) strips = std::max(strips, (outer.q_columns + kStrip - 1) / kStrip);
  const auto run = [&](int strip, int) {
    const int column = strip * kStrip;
    for (size_t first = 0, end = 0; first < outers.size(); first = end) {
      const Outer& shared = outers[first];
      for (end = first + 1; end < outers.size() && outers[end].q == shared.q; ++end) {
      }
      if (column >= shared.q_columns) continue;
      for (int row = 0; row < shared.rows; row += kRows) {
        for (const Outer& outer : outers.subspan(first, end - first)) {
          accumulate_outer(outer.p + row * outer.p_stride, outer.p_stride, outer.p_columns,
                           outer.q + row * outer.q_stride + column, outer.q_stride,
                           std::min(kStrip, outer.q_columns - column), std::min(kRows, outer.rows - row),
                           outer.g + column, outer.q_columns);
        }
      }
    }
  };
  pool_.run(strips, run);
}

}  // namespace tuft::engine::native
