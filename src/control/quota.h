// What a user may have at most, and the refusal of more: kResourceExhausted, which is 429, after which the SDK waits
// and sends the same request again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tuft::control {

enum class Quota : uint8_t { kSessions, kRuns, kSamplers, kFutures, kSamplesInFlight, kQueuedBytes, kCheckpointBytes };
inline constexpr size_t kQuotas = 7;
std::string_view quota_name(Quota quota);   // "sessions", ... : label of tuft.quota.refusals
std::string_view quota_limit(Quota quota);  // "limits.sessions_per_user_max", ... : the key of the configuration

// The refusal, counted. `what`: "you have 64 training runs"; `cure`: what the user can do, "unload some".
Error over_quota(Quota quota, std::string_view what, std::string_view cure);

// Makes the series of tuft.quota.refusals.
void bind_quota_series();

}  // namespace tuft::control
