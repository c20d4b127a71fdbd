// The shape of a tensor in error messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tuft::engine {

// Returns a text such as "[2, 64]".
inline std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace tuft::engine
