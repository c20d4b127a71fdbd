// Finds the known word that is closest to a mistyped one.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <string_view>

namespace tuft::config {

// Returns the number of insertions, deletions, substitutions and swaps of neighbours between two texts, in bytes
// (optimal string alignment); `enough` if there are that many or more, which takes less time than to count them all.
size_t edit_distance(std::string_view a, std::string_view b, size_t enough = std::numeric_limits<size_t>::max());

// Returns the closest of `known`, or "" if none is within a third of the word's length (at least 2).
std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known);

}  // namespace tuft::config
