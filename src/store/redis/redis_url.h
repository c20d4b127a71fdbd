// The address and login of a Redis server, from a URL of redis-py's form.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace tuft::store {

struct RedisUrl {
  std::string host = "localhost";
  int port = 6379;
  std::string socket;    // path of a unix socket, used instead of host and port; empty: none
  std::string user;      // empty: the default user
  std::string password;  // a secret; empty: no login
  int database = 0;

  // Returns, for instance, "Redis at localhost:6379, database 0", without user and password.
  std::string name() const;
};

// Parses redis://[[user]:password@]host[:port][/database] or unix://[[user]:password@]/path[?db=0]. Returns
// kInvalidArgument for other text; the message shows no part of the URL, which may contain a password.
Result<RedisUrl> parse_redis_url(std::string_view url);

}  // namespace tuft::store
