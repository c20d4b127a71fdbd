// What every target shares.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace tuft::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// What a decoder promises of what it took; the fuzzer shows the input that breaks it.
inline void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace tuft::fuzz
