// "did you mean": the known word that a mistyped one is closest to.
#pragma once

#include <span>
#include <string_view>

namespace tuft::config {

// Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment), in bytes.
size_t edit_distance(std::string_view a, std::string_view b);

// The closest of `known`, or "" where none is within a third of the word's length (at least 2).
std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known);

}  // namespace tuft::config
