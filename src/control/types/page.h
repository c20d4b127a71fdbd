// A page of a list, as clients ask for it.
#pragma once

#include <cstdint>
#include <vector>

namespace tuft::control {

struct PageRequest {
  int64_t offset = 0;  // >= 0; past the end is an empty page
  int64_t limit = 20;  // >= 1
};

template <typename T>
struct Page {
  std::vector<T> items;
  int64_t offset = 0;
  int64_t limit = 0;
  int64_t total = 0;  // items of the whole list
};

}  // namespace tuft::control
