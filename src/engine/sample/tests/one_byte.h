// A tokenizer of one letter for each token.
#pragma once

#include <cstdint>
#include <string>

namespace tuft::engine {

inline std::string one_byte(int32_t token) {
  return std::string(1, static_cast<char>('a' + token));
}

}  // namespace tuft::engine
