#pragma once

#include <cmath>
#include <string>

namespace tuft::control {

// Returns a share of 1 in words, for instance "60 %".
inline std::string percent(double share) {
  return std::to_string(std::lround(share * 100)) + " %";
}

}  // namespace tuft::control
