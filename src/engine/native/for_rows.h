// Row-wise work on the pool, divided into tasks that are large enough to be worth a thread.
#pragma once

#include <algorithm>

#include "engine/back_end/thread_pool.h"

namespace tuft::engine::native {

// Calls function(row) for every row in [0, rows); a row costs about `width` cheap operations.
template <typename F>
void for_rows(ThreadPool& pool, int rows, int width, const F& function) {
  constexpr int kPiece = 8'192;
  const int step = std::max(1, kPiece / std::max(1, width));
  const auto piece = [&](int task, int) {
    const int end = std::min(rows, (task + 1) * step);
    for (int row = task * step; row < end; ++row) function(row);
  };
  const int pieces = (rows + step - 1) / step;
  if (pieces <= 2) {
    for (int task = 0; task < pieces; ++task) piece(task, 0);
    return;
  }
  pool.run(pieces, piece);
}

}  // namespace tuft::engine::native
