// Loops over a row of the vocabulary, with the widest vectors that the processor has. The bits of their results do not
// depend on which those are: each value is computed by the same operations, of which none are fused, and a sum has
// sixteen lanes by index. Internal to Distribution.
#pragma once

#include <cstddef>
#include <span>

namespace tuft::engine {

constexpr size_t kRowBlock = 1024;  // of the sums of weights

// Returns the largest value, -infinity if there is none; NaN if a value is NaN.
float row_maximum(std::span<const float> row);

// Sets weights[i] to exp((row[i] - maximum) * scale), and block_sums to the sum of each block of weights. The relative
// error of exp is below 3e-7 plus that of its argument; below -87, where it would be subnormal, it stays at exp(-87).
// Requires: no value is NaN or above `maximum`, which is finite; scale is finite and above 0; `weights` has the size of
// the row, and `block_sums` one place for each block that is begun.
void row_weights(std::span<const float> row, float maximum, float scale, std::span<float> weights,
                 std::span<double> block_sums);

// Returns the index of the first value from `begin` on that is at least `least`; row.size() if there is none.
size_t find_at_least(std::span<const float> row, size_t begin, float least);

}  // namespace tuft::engine
