// The quotas of a user, and their refusal: kResourceExhausted, which is HTTP 429, after which the SDK waits and repeats
// the request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tuft::control {

enum class Quota : uint8_t {
  kSessions,
  kSessionBytes,
  kRuns,
  kSamplers,
  kFutures,
  kSamplesInFlight,
  kQueuedBytes,
  kCheckpointBytes,
  kArchives,
  kCustomLosses,
  kCustomLossBytes,
};
inline constexpr size_t kQuotas = 11;
std::string_view quota_limit(Quota quota);  // "limits.sessions_per_user_max", ... : the key of the configuration

// Counts a refusal and returns its error. `what`: "you have 64 training runs"; `cure`: what the user can do, "unload
// some".
Error over_quota(Quota quota, std::string_view what, std::string_view cure);

// Returns the refusal of a checkpoint of `bytes` of a user whose others take `used` bytes, or nothing if it fits into
// limits.checkpoint_bytes_per_user_max (`limit`; 0: no limit).
std::optional<Error> over_checkpoint_bytes(int64_t used, int64_t bytes, int64_t limit);

// Creates the series of tuft.quota.refusals, with value 0.
void bind_quota_series();

}  // namespace tuft::control
