// Helpers of all fuzz targets.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace tuft::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Checks a guarantee of a decoder; the fuzzer shows an input that breaks it.
inline void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace tuft::fuzz
