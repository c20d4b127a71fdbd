// CheckedDatum: a datum that has passed every check and is ready to be packed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/loss/loss.h"
#include "engine/trainer.h"

namespace tuft::engine {

// The values of a tensor's cells, row-major; or those in `places`, while all others are 0.
template <typename T>
struct Cells {
  std::vector<T> values;
  std::optional<std::vector<int64_t>> places = std::nullopt;

  // Returns the values of all cells, of which there are `count`. They lie here or in `buffer`.
  std::span<const T> all(size_t count, std::vector<T>& buffer) const {
    if (!places) return values;
    buffer.assign(count, T{0});
    for (size_t i = 0; i < values.size(); ++i) buffer[static_cast<size_t>((*places)[i])] = values[i];
    return buffer;
  }
};

struct CheckedDatum {
  std::vector<int32_t> tokens;
  std::vector<int64_t> target_shape;                // [N] or [N, K]
  Cells<int32_t> targets;                           // K per row
  std::vector<std::optional<Cells<float>>> inputs;  // in the order of Loss::inputs(); empty: the fallback
  std::vector<LossTensor> custom_inputs = {};       // as in Datum

  int targets_per_row() const { return target_shape.size() == 1 ? 1 : static_cast<int>(target_shape[1]); }
  size_t target_count() const { return tokens.size() * static_cast<size_t>(targets_per_row()); }
};

// The input of every loss that has the targets.
inline constexpr const char* kTargetTokens = "target_tokens";
// The most targets of one token (K).
inline constexpr int64_t kTargetsOfTokenMax = 1024;

struct DatumLimits {
  int vocab_size = 0;
  int tokens_max = 0;  // 0: none
};

// Returns true if the values fill the shape, or lie in it if the tensor is sparse.
bool fills_shape(const LossTensor& tensor);

// Checks a datum. Returns kInvalidArgument that names data[index] and the key. Messages contain no token and no value.
Result<CheckedDatum> check_datum(Datum datum, size_t index, const Loss& loss, const DatumLimits& limits);

}  // namespace tuft::engine
