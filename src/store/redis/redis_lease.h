// The lease of a namespace in Redis: the keys <namespace>:leader, :epoch and :standby. Needs Redis 5 or later.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "store/leadership.h"
#include "store/redis/redis_url.h"

namespace tuft::store {

struct RedisLeaseOptions {
  std::string name_space;
  // The time limit of a call is this for a connection and this for an answer. A third of the lease leaves time for
  // another attempt.
  Nanos timeout = kSecond;
};

// Connects with the first call.
std::unique_ptr<Lease> make_redis_lease(const RedisUrl& url, const RedisLeaseOptions& options);

}  // namespace tuft::store
