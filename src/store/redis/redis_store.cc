#include "store/redis/redis_store.h"

#include <algorithm>
#include <string_view>
#include <sys/socket.h>
#include <sys/time.h>
#include <utility>

#include <hiredis/hiredis.h>

#include "base/mutex.h"

namespace tuft::store {
namespace {

constexpr Nanos kPauseMin = 100 * kMillisecond;
constexpr Nanos kPauseMax = 5 * kSecond;
constexpr std::string_view kScanCount = "1000";
constexpr size_t kReadGroup = 256;

struct FreeContext {
  void operator()(redisContext* context) const { redisFree(context); }
};
using Connection = std::unique_ptr<redisContext, FreeContext>;

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

using Command = std::vector<std::string_view>;

timeval to_timeval(Nanos nanos) {
  return {static_cast<time_t>(nanos / kSecond), static_cast<suseconds_t>(nanos % kSecond / kMicrosecond)};
}

// Escapes the text for a pattern of SCAN.
std::string escaped(std::string_view prefix) {
  std::string pattern;
  for (const char c : prefix) {
    if (std::string_view("*?[]\\^-").find(c) != std::string_view::npos) pattern.push_back('\\');
    pattern.push_back(c);
  }
  return pattern;
}

std::string_view text_of(const redisReply& reply) {
  return reply.str == nullptr ? std::string_view() : std::string_view(reply.str, reply.len);
}

class RedisBackend final : public Backend {
 public:
  RedisBackend(RedisUrl url, const RedisTimeouts& timeouts) : url_(std::move(url)), timeouts_(timeouts) {}

  std::vector<Status> write(std::span<const Write> writes) override {
    std::vector<Status> results;
    results.reserve(writes.size());
    // The connection may have broken while it was idle, so try once more. Repeating a write is harmless.
    for (int attempt = 0; attempt < 2; ++attempt) {
      const bool was_connected = connection_ != nullptr;
      Status connected = connect();
      if (connected.ok()) connected = write_rest(writes, results);
      if (connected.ok()) break;
      if (!was_connected || attempt == 1) {
        results.resize(writes.size(), connected);
        break;
      }
    }
    return results;
  }

  Result<std::optional<std::string>> get(const std::string& key) override {
    TUFT_ASSIGN(const Reply reply, ask({"GET", key}));
    if (reply->type == REDIS_REPLY_NIL) return std::optional<std::string>();
    return std::optional<std::string>(text_of(*reply));
  }

  Result<std::vector<Entry>> scan(const std::string& prefix) override {
    TUFT_ASSIGN(std::vector<std::string> keys, scan_keys(escaped(prefix) + '*'));
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    std::vector<Entry> entries;
    for (size_t first = 0; first < keys.size(); first += kReadGroup) {
      const size_t last = std::min(keys.size(), first + kReadGroup);
      Command command{"MGET"};
      command.insert(command.end(), keys.begin() + static_cast<ptrdiff_t>(first),
                     keys.begin() + static_cast<ptrdiff_t>(last));
      TUFT_ASSIGN(const Reply values, ask(command));
      if (values->type != REDIS_REPLY_ARRAY || values->elements != last - first) return unexpected();
      for (size_t i = first; i < last; ++i) {
        const redisReply& value = *values->element[i - first];
        // Deleted meanwhile, or a foreign value of another type.
        if (value.type == REDIS_REPLY_STRING) entries.push_back({keys[i], std::string(text_of(value))});
      }
    }
    return entries;
  }

  Status probe() override {
    const Result<Reply> pong = ask({"PING"});
    return pong.ok() ? Status() : Status(pong.error());
  }

  // Wakes a thread that waits on the socket.
  void interrupt() override TUFT_EXCLUDES(socket_mutex_) {
    MutexLock lock(socket_mutex_);
    interrupted_ = true;
    if (socket_ >= 0) ::shutdown(socket_, SHUT_RDWR);
  }

 private:
  // ---- the connection

  Status connect() {
    if (connection_ != nullptr) return {};
    if (system_clock().monotonic() < next_try_) return last_failure_;
    Status made = make_connection();
    if (!made.ok()) {
      drop_connection();
      pause_ = pause_ == 0 ? kPauseMin : std::min(pause_ * 2, kPauseMax);
      next_try_ = system_clock().monotonic() + pause_;
      last_failure_ = made.error();
      return made;
    }
    pause_ = 0;
    return {};
  }

  Status make_connection() {
    const timeval connect_timeout = to_timeval(timeouts_.connect);
    connection_.reset(url_.socket.empty() ? redisConnectWithTimeout(url_.host.c_str(), url_.port, connect_timeout)
                                          : redisConnectUnixWithTimeout(url_.socket.c_str(), connect_timeout));
    if (connection_ == nullptr) return unavailable(url_.name() + ": out of memory", "store_unreachable");
    if (connection_->err != 0) return broken();
    if (!register_socket()) return unavailable(url_.name() + " is closed", "store_closed");
    if (redisSetTimeout(connection_.get(), to_timeval(timeouts_.answer)) != REDIS_OK) return broken();
    if (!url_.password.empty()) {
      Command login{"AUTH"};
      if (!url_.user.empty()) login.push_back(url_.user);
      login.push_back(url_.password);
      TUFT_TRY(exchange(login));
    }
    if (url_.database != 0) TUFT_TRY(exchange({"SELECT", std::to_string(url_.database)}));
    return exchange({"PING"});
  }

  // Makes the socket known to interrupt(). Returns false if interrupt() was called before.
  bool register_socket() TUFT_EXCLUDES(socket_mutex_) {
    MutexLock lock(socket_mutex_);
    if (interrupted_) return false;
    socket_ = connection_->fd;
    return true;
  }

  void drop_connection() TUFT_EXCLUDES(socket_mutex_) {
    {
      MutexLock lock(socket_mutex_);
      socket_ = -1;
    }
    connection_.reset();
  }

  // Drops the connection and returns its error.
  Error broken() {
    const bool timed_out = connection_->err == REDIS_ERR_IO && (errno == EAGAIN || errno == ETIMEDOUT);
    const std::string cause = timed_out ? "timeout" : std::string(connection_->errstr);
    drop_connection();
    return unavailable(url_.name() + ": " + cause, timed_out ? "store_timeout" : "store_unreachable");
  }

  Error unexpected() {
    drop_connection();
    return unavailable(url_.name() + " sent an unexpected answer", "store_io");
  }

  // Each error of Redis begins with a word. The rest may repeat the command and is not shown.
  Error refused(std::string_view text) const {
    const std::string word(text.substr(0, text.find(' ')));
    const std::string what = url_.name() + " refused the operation with " + word;
    if (word == "OOM") return unavailable(what + ": its memory exceeds maxmemory", "store_full");
    if (word == "READONLY") return unavailable(what + ": it is a replica; configure the primary", "store_readonly");
    if (word == "MISCONF") return unavailable(what + ": it cannot write to its disk", "store_full");
    if (word == "LOADING") return unavailable(what + ": it is still loading its data", "store_unreachable");
    if (word == "NOAUTH" || word == "WRONGPASS" || word == "NOPERM") {
      return unavailable(what + ": user or password in persistence.redis_url is not accepted", "store_refused");
    }
    return unavailable(what, "store_refused");
  }

  // ---- commands

  void append(const Command& command) {
    std::vector<const char*> words;
    std::vector<size_t> sizes;
    words.reserve(command.size());
    sizes.reserve(command.size());
    for (const std::string_view word : command) {
      words.push_back(word.data());
      sizes.push_back(word.size());
    }
    // Fails only if memory is exhausted; then the missing answer is reported as an error.
    redisAppendCommandArgv(connection_.get(), static_cast<int>(words.size()), words.data(), sizes.data());
  }

  // Returns an error only if the connection is broken.
  Result<Reply> next_reply() {
    void* reply = nullptr;
    if (redisGetReply(connection_.get(), &reply) != REDIS_OK || reply == nullptr) return broken();
    return Reply(static_cast<redisReply*>(reply));
  }

  Status exchange(const Command& command) {
    append(command);
    TUFT_ASSIGN(const Reply reply, next_reply());
    if (reply->type == REDIS_REPLY_ERROR) return refused(text_of(*reply));
    return {};
  }

  Result<Reply> ask(const Command& command) {
    Error failure;
    for (int attempt = 0; attempt < 2; ++attempt) {
      const bool was_connected = connection_ != nullptr;
      TUFT_TRY(connect());
      append(command);
      Result<Reply> reply = next_reply();
      if (reply.ok()) {
        if ((*reply)->type == REDIS_REPLY_ERROR) return refused(text_of(**reply));
        return reply;
      }
      failure = reply.error();
      if (!was_connected) break;
    }
    return failure;
  }

  Result<std::vector<std::string>> scan_keys(const std::string& pattern) {
    std::vector<std::string> keys;
    std::string cursor = "0";
    do {
      TUFT_ASSIGN(const Reply page, ask({"SCAN", cursor, "MATCH", pattern, "COUNT", kScanCount}));
      if (page->type != REDIS_REPLY_ARRAY || page->elements != 2) return unexpected();
      cursor = text_of(*page->element[0]);
      for (size_t i = 0; i < page->element[1]->elements; ++i) {
        keys.emplace_back(text_of(*page->element[1]->element[i]));
      }
    } while (cursor != "0");
    return keys;
  }

  // ---- writes, all sent before the first answer is read

  size_t append_write(const Write& write) {
    const bool grouped = write.changes.size() > 1;
    if (grouped) append({"MULTI"});
    for (const Change& change : write.changes) {
      if (!change.value) {
        append({"DEL", change.key});
      } else if (change.time_to_live) {
        const std::string milliseconds = std::to_string(std::max<Nanos>(1, *change.time_to_live / kMillisecond));
        append({"SET", change.key, *change.value, "PX", milliseconds});
      } else {
        append({"SET", change.key, *change.value});
      }
    }
    if (grouped) append({"EXEC"});
    return write.changes.size() + (grouped ? 2 : 0);
  }

  // Appends to `results`. Returns an error if the connection breaks before all commands are answered.
  Status write_rest(std::span<const Write> writes, std::vector<Status>& results) {
    std::vector<size_t> replies;
    for (size_t i = results.size(); i < writes.size(); ++i) replies.push_back(append_write(writes[i]));
    for (const size_t count : replies) {
      Status result;
      for (size_t i = 0; i < count; ++i) {
        TUFT_ASSIGN(const Reply reply, next_reply());
        if (result.ok() && reply->type == REDIS_REPLY_ERROR) result = refused(text_of(*reply));
        for (size_t e = 0; reply->type == REDIS_REPLY_ARRAY && e < reply->elements; ++e) {
          if (result.ok() && reply->element[e]->type == REDIS_REPLY_ERROR)
            result = refused(text_of(*reply->element[e]));
        }
      }
      results.push_back(result);
    }
    return {};
  }

  const RedisUrl url_;
  const RedisTimeouts timeouts_;
  Connection connection_;
  Nanos pause_ = 0;
  Nanos next_try_ = 0;
  Error last_failure_;

  Mutex socket_mutex_;
  int socket_ TUFT_GUARDED_BY(socket_mutex_) = -1;  // of connection_
  bool interrupted_ TUFT_GUARDED_BY(socket_mutex_) = false;
};

}  // namespace

Result<std::unique_ptr<KeyValue>> open_redis_store(const RedisUrl& url, const RedisTimeouts& timeouts,
                                                   const QueueLimits& limits) {
  auto backend = std::make_unique<RedisBackend>(url, timeouts);
  TUFT_TRY(backend->probe());
  const bool is_tcp = url.socket.empty();
  StoreIdentity identity{.name = url.name(),
                         .system = "redis",
                         .address = is_tcp ? url.host : url.socket,
                         .port = is_tcp ? url.port : 0,
                         .database = std::to_string(url.database),
                         .scope = "tuft.redis_store",
                         .span_names = {"redis.SET", "redis.GET", "redis.DEL", "redis.SCAN"},
                         .is_redis = true};
  return make_threaded_store(std::move(backend), std::move(identity), limits);
}

}  // namespace tuft::store
