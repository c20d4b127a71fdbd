// Errors that several rooms return.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace tuft::control {

// The reason of shutting_down(). Metrics count an operation that ends with it as cancelled, not as failed.
inline constexpr std::string_view kShuttingDown = "shutting_down";

// Returns the error of everything that the end of the server cuts off or refuses.
inline Error shutting_down() {
  return unavailable("the server is shutting down", std::string(kShuttingDown));
}

}  // namespace tuft::control
