#include "config/nearest.h"

#include <algorithm>
#include <vector>

namespace tuft::config {

size_t edit_distance(std::string_view a, std::string_view b, size_t enough) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitution = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    // No row has less than the one before it.
    if (*std::min_element(row.begin(), row.end()) >= enough) return enough;
    before_last.swap(last);
    last.swap(row);
  }
  return std::min(last[b.size()], enough);
}

std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known) {
  if (word.size() > 64) return {};
  std::string_view best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string_view candidate : known) {
    const auto [shorter, longer] = std::minmax({word.size(), candidate.size()});
    if (longer - shorter >= best_distance) continue;  // the distance is at least that
    const size_t distance = edit_distance(word, candidate, best_distance);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace tuft::config
