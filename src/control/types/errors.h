// Errors that several rooms return.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace tuft::control {

// The reason of shutting_down(). Metrics count an operation that ends with it as cancelled, not as failed.
inline constexpr std::string_view kShuttingDown = "shutting_down";

// The error of an operation that a restart of the server has ended; `message` says what the client can do.
inline Error server_restarted(std::string message) {
  return {ErrorCode::kGone, std::move(message), "server_restarted"};
}
// The same for one that was not finished and has no effect.
inline Error unfinished_at_restart() {
  return server_restarted(
      "the server was restarted before this operation was finished; it has no result. Submit it again");
}

// Returns the error of everything that the end of the server cuts off or refuses.
inline Error shutting_down() {
  return unavailable("the server is shutting down", std::string(kShuttingDown));
}

}  // namespace tuft::control
