// The quotas of a user, and their refusal: kResourceExhausted, which is HTTP 429, after which the SDK waits and repeats
// the request.
#pragma once

#include <cstdint>
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
};
inline constexpr size_t kQuotas = 9;
std::string_view quota_limit(Quota quota);  // "limits.sessions_per_user_max", ... : the key of the configuration

// Counts a refusal and returns its error. `what`: "you have 64 training runs"; `cure`: what the user can do, "unload
// some".
Error over_quota(Quota quota, std::string_view what, std::string_view cure);

// Creates the series of tuft.quota.refusals, with value 0.
void bind_quota_series();

}  // namespace tuft::control
