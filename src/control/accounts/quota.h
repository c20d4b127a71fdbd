// The quotas of a user, and their refusal: kResourceExhausted, which is HTTP 429, after which the SDK waits and repeats
// the request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "control/types/checkpoint.h"

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
  kCheckpoints,
  kArchives,
  kCustomLosses,
  kCustomLossBytes,
};
inline constexpr size_t kQuotas = 12;
std::string_view quota_limit(Quota quota);  // "limits.sessions_per_user_max", ... : the key of the configuration

// Counts a refusal and returns its error. `what`: "you have 64 training runs"; `cure`: what the user can do, "unload
// some".
Error over_quota(Quota quota, std::string_view what, std::string_view cure);

// Returns the quota that a checkpoint exceeds, or nothing: it takes `more`, the user's others take `used`, and `limit`
// has limits.checkpoint_bytes_per_user_max (0: no limit) and limits.checkpoints_per_user_max.
std::optional<Quota> exceeded(const CheckpointUse& used, const CheckpointUse& more, const CheckpointUse& limit);
// Returns its refusal, or nothing.
std::optional<Error> over_checkpoints(const CheckpointUse& used, const CheckpointUse& more, const CheckpointUse& limit);
// Returns true if an error with this reason is such a refusal.
bool is_over_checkpoints(std::string_view reason);

// Creates the series of tuft.quota.refusals, with value 0.
void bind_quota_series();

}  // namespace tuft::control
