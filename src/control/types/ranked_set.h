// An ordered set that also finds its n-th element in O(log n), for lists that are read in pages. It is libstdc++'s
// tree with order statistics (ext/pb_ds).
#pragma once

#include <algorithm>
#include <cstdint>

#include <ext/pb_ds/assoc_container.hpp>
#include <ext/pb_ds/tree_policy.hpp>

#include "control/types/page.h"

namespace tuft::control {

template <typename T, typename Less>
using RankedSet = __gnu_pbds::tree<T, __gnu_pbds::null_type, Less, __gnu_pbds::rb_tree_tag,
                                   __gnu_pbds::tree_order_statistics_node_update>;

template <typename T, typename Less>
Page<T> page_of(const RankedSet<T, Less>& set, const PageRequest& request) {
  Page<T> page{{}, request.offset, request.limit, static_cast<int64_t>(set.size())};
  if (request.offset >= page.total) return page;
  auto item = set.find_by_order(static_cast<size_t>(request.offset));
  for (int64_t left = std::min(request.limit, page.total - request.offset); left > 0; --left) {
    page.items.push_back(*item++);
  }
  return page;
}

}  // namespace tuft::control
