// Where a Redis is and how to log in, from a URL as redis-py takes it.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace tuft::store {

struct RedisUrl {
  std::string host = "localhost";
  int port = 6379;
  std::string socket;    // path of a unix socket; then host and port mean nothing
  std::string user;      // empty: the default user
  std::string password;  // a secret; empty: no login
  int database = 0;

  // "Redis at localhost:6379, database 0": without user and password.
  std::string name() const;
};

// redis://[[user]:password@]host[:port][/database] or unix://[[user]:password@]/path[?db=0]. kInvalidArgument
// otherwise, in words that show nothing of the URL: it may hold a password.
Result<RedisUrl> parse_redis_url(std::string_view url);

}  // namespace tuft::store
