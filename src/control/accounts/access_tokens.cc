#include "control/accounts/access_tokens.h"

#include <string>

#include "metrics/http.h"
#include "telemetry/log.h"

namespace tuft::control {
namespace {

constexpr Nanos kGuessWindow = 60 * kSecond;

}  // namespace

Result<UserId> AccessTokens::user_of(const UserId& asker, std::string_view token) {
  {
    MutexLock lock(mutex_);
    Minute& minute = minutes_[asker];
    const Nanos now = clock_.monotonic();
    if (now - minute.begin >= kGuessWindow) minute = {now, 0};
    if (minute.unknown >= kUnknownPerMinuteMax) {
      return Error{ErrorCode::kResourceExhausted,
                   "weights_access_token: you have sent " + std::to_string(kUnknownPerMinuteMax) +
                       " unknown tokens within a minute; wait a minute, or leave the token out (your own and public "
                       "checkpoints need none)",
                   "too_many_tokens"};
    }
  }
  if (const auto user = keys_.authenticate(token); user.ok()) return *user;
  {
    MutexLock lock(mutex_);
    ++minutes_[asker].unknown;
  }
  metrics::http().auth_failures.add(1, {{"reason", "token"}});
  telemetry::log_warning("auth.failed", "a load came with an unknown weights_access_token",
                         {{"tuft.error.reason", "unknown_token"}});
  return UserId();
}

}  // namespace tuft::control
