// One connection to a Redis server, and its errors as those of stores (key_value.h).
//
// A broken connection is made again: at once for the operation that finds it broken, then with a growing pause. Until
// it succeeds, operations fail at once with store_unreachable. Nothing more is sent over the broken one, so that no
// write of it can take effect after those of the next one.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <hiredis/hiredis.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "store/redis/redis_url.h"

namespace tuft::store {

struct RedisTimeouts {
  Nanos connect = 2 * kSecond;
  Nanos answer = 5 * kSecond;
  Nanos pause_max = 5 * kSecond;  // between attempts to connect
};

struct FreeRedisReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using RedisReply = std::unique_ptr<redisReply, FreeRedisReply>;
using RedisCommand = std::vector<std::string_view>;

// The word of the errors of our own scripts for a server that does not lead any more.
inline constexpr std::string_view kNotLeader = "NOTLEADER";

// Returns the text of a reply; empty if it has none.
std::string_view text_of(const redisReply& reply);

// Confined to one thread, except interrupt(). Commands and replies are used only after connect() has succeeded.
class RedisConnection {
 public:
  // Each connection loads `script` before it is used, for EVALSHA; empty: there is none. It must have static storage.
  RedisConnection(RedisUrl url, const RedisTimeouts& timeouts, std::string_view script = {});
  RedisConnection(const RedisConnection&) = delete;
  RedisConnection& operator=(const RedisConnection&) = delete;

  const RedisUrl& url() const { return url_; }
  bool is_made() const { return connection_ != nullptr; }
  Status connect();
  void append(const RedisCommand& command);
  // Returns an error only if the connection is broken.
  Result<RedisReply> next_reply();
  // Sends one command and returns its reply, which is no error. A connection that turns out to be broken, or to lead to
  // a server that is no primary, is made again once, so the command must be harmless when it is repeated.
  Result<RedisReply> ask(const RedisCommand& command);
  // Returns the hash of the script. Requires connect().
  const std::string& script_sha() const { return script_sha_; }

  // Each error of Redis begins with a word. The rest may repeat the command and is not shown.
  Error refused(std::string_view text) const;
  // Drops the connection and returns the error for an answer that makes no sense.
  Error unexpected();
  // After a failover the address may lead to another server. So a connection to a server that refuses because it is no
  // primary, or not ready, or does not know the script, is made again: at once for the first refusal, then after a
  // growing pause. Meanwhile the connection is kept, because such a server may answer reads. Returns true if the
  // connection was dropped.
  bool drop_former_primary(std::string_view refusal);
  void note_accepted() { search_pause_ = next_search_ = 0; }

  // Wakes a thread that waits on the socket, and makes later operations fail. Thread-safe.
  void interrupt() TUFT_EXCLUDES(socket_mutex_);

 private:
  struct FreeContext {
    void operator()(redisContext* context) const { redisFree(context); }
  };

  Status make_connection();
  Status load_script();
  Status check_mode();
  Error is_cluster() const;
  bool register_socket() TUFT_EXCLUDES(socket_mutex_);
  void drop() TUFT_EXCLUDES(socket_mutex_);
  Error broken();
  Status exchange(const RedisCommand& command);

  const RedisUrl url_;
  const RedisTimeouts timeouts_;
  const std::string_view script_;
  std::string script_sha_;
  std::unique_ptr<redisContext, FreeContext> connection_;
  Nanos pause_ = 0;
  Nanos next_try_ = 0;
  Error last_failure_;
  Nanos search_pause_ = 0;  // see drop_former_primary()
  Nanos next_search_ = 0;

  Mutex socket_mutex_;
  int socket_ TUFT_GUARDED_BY(socket_mutex_) = -1;  // of connection_
  bool interrupted_ TUFT_GUARDED_BY(socket_mutex_) = false;
};

}  // namespace tuft::store
