// The rows that one pass or step computes, with their adapters and sequences.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/native/adapter.h"
#include "engine/native/ops/attention.h"

namespace tuft::engine::native {

// Adjacent rows [begin, end) with the same adapter; null: the base model alone.
struct Run {
  Adapter* adapter = nullptr;
  int begin = 0;
  int end = 0;

  int rows() const { return end - begin; }
};

// Rows [begin, end) of one sequence, the first one at `position`. `blocks` is its KV cache, up to its last row.
struct SequenceRows {
  int begin = 0;
  int end = 0;
  int position = 0;
  const float* const* blocks = nullptr;

  int length() const { return position + end - begin; }
};

inline constexpr int kHeadDimMax = 1024;

struct Batch {
  int rows = 0;
  std::vector<int32_t> tokens;          // of each row
  std::vector<int> positions;           // of each row
  std::vector<Run> runs;                // cover all rows in order
  std::vector<SequenceRows> sequences;  // cover all rows in order

  // Appends the rows of a sequence. Extends the last run if the adapter is the same.
  void append(Adapter* adapter, std::span<const int32_t> new_tokens, int position, const float* const* blocks) {
    const int begin = rows;
    rows += static_cast<int>(new_tokens.size());
    tokens.insert(tokens.end(), new_tokens.begin(), new_tokens.end());
    for (int row = begin; row < rows; ++row) positions.push_back(position + row - begin);
    if (runs.empty() || runs.back().adapter != adapter) {
      runs.push_back({adapter, begin, rows});
    } else {
      runs.back().end = rows;
    }
    sequences.push_back({begin, rows, position, blocks});
  }
};

// Returns the runs of the given rows of a batch (ascending), numbered by their index in `rows`.
std::vector<Run> runs_of_rows(const std::vector<Run>& runs, std::span<const int> rows);

}  // namespace tuft::engine::native
