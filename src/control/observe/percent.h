#pragma once

#include <cmath>
#include <string>

namespace tuft::control {

// Returns a share between 0 and 1 as a text such as "60 %".
inline std::string percent(double share) {
  return std::to_string(std::lround(share * 100)) + " %";
}

}  // namespace tuft::control
