// CheckedDatum: a datum that has passed every check and is ready to be packed.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "engine/loss/loss.h"
#include "engine/trainer.h"

namespace tuft::engine {

struct CheckedDatum {
  std::vector<int32_t> tokens;
  std::vector<int64_t> target_shape;       // [N] or [N, K]
  std::vector<int32_t> targets;            // K per row, row-major
  std::vector<std::vector<float>> inputs;  // in the order of Loss::inputs(); empty: the fallback

  int targets_per_row() const { return static_cast<int>(targets.size() / tokens.size()); }
};

struct DatumLimits {
  int vocab_size = 0;
  int tokens_max = 0;  // 0: none
};

// Checks a datum. Returns kInvalidArgument that names data[index] and the key. Messages contain no token and no value.
Result<CheckedDatum> check_datum(Datum datum, size_t index, const Loss& loss, const DatumLimits& limits);

}  // namespace tuft::engine
