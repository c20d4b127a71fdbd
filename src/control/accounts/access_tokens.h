// weights_access_token of load_weights: an API key of somebody else, which opens what that user may load.
//
// Who has a key could try others with it, so unknown tokens are counted as unknown keys are, and each user may send
// only so many in a minute.
#pragma once

#include <string_view>
#include <unordered_map>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "control/accounts/api_keys.h"
#include "control/types/types.h"

namespace tuft::control {

// Thread-safe.
class AccessTokens {
 public:
  static constexpr int kUnknownPerMinuteMax = 10;

  AccessTokens(const ApiKeys& keys, const Clock& clock) : keys_(keys), clock_(clock) {}

  // Returns whose key `token` is. An unknown token grants nothing: the result is empty. kResourceExhausted
  // "too_many_tokens", without looking at the token, after kUnknownPerMinuteMax unknown ones of `asker` in a minute.
  Result<UserId> user_of(const UserId& asker, std::string_view token) TUFT_EXCLUDES(mutex_);

 private:
  struct Minute {
    Nanos begin = 0;
    int unknown = 0;
  };

  const ApiKeys& keys_;
  const Clock& clock_;
  Mutex mutex_;
  std::unordered_map<UserId, Minute> minutes_ TUFT_GUARDED_BY(mutex_);  // of users, who are as many as have keys
};

}  // namespace tuft::control
