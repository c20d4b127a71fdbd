// Cuts the part of a list that was asked for.
#pragma once

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "control/observe/views.h"

namespace tuft::control {

// Returns a part of `rows`, sorted by `key(row)`, the largest first.
template <typename T, typename Key>
PartOf<T> newest_part(std::vector<T> rows, const Part& part, Key key) {
  std::sort(rows.begin(), rows.end(), [&](const T& a, const T& b) { return key(b) < key(a); });
  const size_t begin = std::min(part.offset, rows.size());
  const size_t end = begin + std::min(part.limit, rows.size() - begin);
  PartOf<T> found;
  if (end < rows.size()) found.next = end;
  found.rows.assign(std::make_move_iterator(rows.begin() + static_cast<std::ptrdiff_t>(begin)),
                    std::make_move_iterator(rows.begin() + static_cast<std::ptrdiff_t>(end)));
  return found;
}

}  // namespace tuft::control
