// A store in a Redis server. A write succeeds when Redis has acknowledged it; how durable it then is depends on the
// configuration of Redis (appendonly, appendfsync).
//
// A broken connection is made again: at once for the operation that finds it broken, then with a growing pause of 0.1 s
// to 5 s. Until it succeeds, operations fail at once with store_unreachable.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/result.h"
#include "store/key_value.h"
#include "store/redis/redis_url.h"
#include "store/threaded_store.h"

namespace tuft::store {

struct RedisTimeouts {
  Nanos connect = 2 * kSecond;
  Nanos answer = 5 * kSecond;
};

// Returns kUnavailable if the server cannot be reached or refuses the login.
Result<std::unique_ptr<KeyValue>> open_redis_store(const RedisUrl& url, const RedisTimeouts& timeouts = {},
                                                   const QueueLimits& limits = {});

}  // namespace tuft::store
