// TargetRows: the rows of a pack that have targets. A pass needs the logits of these rows only.
#pragma once

#include <span>
#include <vector>

#include "engine/training_engine.h"

namespace tuft::engine {

struct TargetRows {
  TargetRows() = default;
  explicit TargetRows(const Pack& pack);

  size_t size() const { return rows.size(); }
  // Returns the indices of the rows that have a target with a gradient other than zero.
  std::vector<int> active(std::span<const float> gradient) const;

  std::vector<Target> targets;              // of the pack
  std::vector<int> rows;                    // in the pack, ascending
  std::vector<size_t> first;                // index of the first target of rows[i]; one more at the end
  std::vector<float> inverse_temperatures;  // of rows; empty: all are 1
};

}  // namespace tuft::engine
