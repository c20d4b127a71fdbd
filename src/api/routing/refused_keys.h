// Counts refused API keys.
#pragma once

#include <cstdint>
#include <optional>

#include "base/error.h"

namespace tuft::api {

// A refused key that is to be logged. Most are only counted, because nothing limits their number.
struct RefusedKey {
  Error error;
  uint64_t left_out = 0;  // refused keys since the last one that was logged
};

// Returns at most one a second to be logged, so that a client that guesses keys cannot fill the log. `error` is the
// refusal; kUnauthenticated counts as a missing key. Thread-safe.
std::optional<RefusedKey> count_refused_key(const Error& error);

}  // namespace tuft::api
