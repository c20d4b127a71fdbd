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

// The error of a training run that does not exist, and of somebody else's, which a client cannot tell apart.
inline Error unknown_run() {
  return not_found("there is no such training run, or it is not visible to you", "training_run_not_found");
}

// Returns the error of everything that the end of the server cuts off or refuses.
inline Error shutting_down() {
  return unavailable("the server is shutting down", std::string(kShuttingDown));
}

}  // namespace tuft::control
