// A store in a Redis server. A write succeeds when Redis has acknowledged it; how durable it then is depends on the
// configuration of Redis (appendonly, appendfsync).
// How a broken connection is made again says redis_connection.h.
//
// With a fence every write is a script that first compares the token, so no write of a server that another one has
// replaced takes effect; it fails with kFailedPrecondition "not_leader".
#pragma once

#include <memory>
#include <optional>

#include "base/result.h"
#include "store/key_value.h"
#include "store/leadership.h"
#include "store/redis/redis_connection.h"
#include "store/redis/redis_url.h"
#include "store/threaded_store.h"

namespace tuft::store {

// Returns kUnavailable if the server cannot be reached or refuses the login.
Result<std::unique_ptr<KeyValue>> open_redis_store(const RedisUrl& url, const RedisTimeouts& timeouts = {},
                                                   const QueueLimits& limits = {},
                                                   std::optional<Fence> fence = std::nullopt);

}  // namespace tuft::store
