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

// Returns the word with which an error of Redis begins.
std::string_view word_of(std::string_view error) {
  return error.substr(0, error.find(' '));
}

class RedisBackend final : public Backend {
 public:
  RedisBackend(RedisUrl url, const RedisTimeouts& timeouts) : url_(std::move(url)), timeouts_(timeouts) {}

  std::vector<Status> write(std::span<const Write> writes) override {
    std::vector<Status> results;
    results.reserve(writes.size());
    // The connection may have broken while it was idle, or lead to a former primary, so try once more. Repeating a
    // write is harmless.
    for (int attempt = 0; attempt < 2; ++attempt) {
      const bool may_repeat = connection_ != nullptr && attempt == 0;
      Status connected = connect();
      if (connected.ok()) connected = write_rest(writes, results, may_repeat);
      if (connected.ok()) break;
      if (!may_repeat) {
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

  Result<std::vector<Entry>> scan_keys(const std::string& prefix) override {
    TUFT_ASSIGN(std::vector<std::string> keys, keys_of(prefix));
    std::vector<Entry> entries;
    entries.reserve(keys.size());
    for (std::string& key : keys) entries.push_back({std::move(key), {}});
    return entries;
  }

  Result<std::vector<Entry>> scan(const std::string& prefix) override {
    TUFT_ASSIGN(const std::vector<std::string> keys, keys_of(prefix));
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
    TUFT_TRY(check_mode());
    if (url_.database != 0) TUFT_TRY(exchange({"SELECT", std::to_string(url_.database)}));
    return exchange({"PING"});
  }

  // A user who may not ask for the mode learns it from the first command that is redirected.
  Status check_mode() {
    append({"INFO", "server"});
    TUFT_ASSIGN(const Reply reply, next_reply());
    const std::string_view info = text_of(*reply);
    if (info.find("redis_mode:cluster") != std::string_view::npos) return is_cluster();
    if (info.find("redis_mode:sentinel") == std::string_view::npos) return {};
    return unavailable(url_.name() +
                           " is a Sentinel, which keeps no data: configure an address in persistence.redis_url that "
                           "always leads to the primary",
                       "store_refused");
  }

  Error is_cluster() const {
    return unavailable(url_.name() +
                           " is a node of a Redis Cluster, which is not supported: configure a single primary in "
                           "persistence.redis_url",
                       "store_refused");
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
    const std::string word(word_of(text));
    const std::string what = url_.name() + " refused the operation with " + word;
    if (word == "OOM") return unavailable(what + ": its memory exceeds maxmemory", "store_full");
    if (word == "READONLY") return unavailable(what + ": it is a replica; configure the primary", "store_readonly");
    if (word == "MISCONF") return unavailable(what + ": it cannot write to its disk", "store_full");
    if (word == "LOADING") return unavailable(what + ": it is still loading its data", "store_unreachable");
    if (word == "MASTERDOWN") {
      return unavailable(what + ": it is a replica without a primary; configure the primary", "store_unreachable");
    }
    if (word == "MOVED" || word == "ASK" || word == "CROSSSLOT" || word == "CLUSTERDOWN") return is_cluster();
    if (word == "NOAUTH" || word == "WRONGPASS" || word == "NOPERM") {
      return unavailable(what + ": user or password in persistence.redis_url is not accepted", "store_refused");
    }
    return unavailable(what, "store_refused");
  }

  // After a failover the address may lead to another server. So a connection to a server that refuses because it is no
  // primary, or not ready, is made again: at once for the first refusal, then after a growing pause. Meanwhile the
  // connection is kept, because such a server may answer reads. Returns true if the connection was dropped.
  bool drop_former_primary(std::string_view refusal) {
    const std::string_view word = word_of(refusal);
    if (word != "READONLY" && word != "LOADING" && word != "MASTERDOWN") return false;
    const Nanos now = system_clock().monotonic();
    if (now < next_search_) return false;
    search_pause_ = search_pause_ == 0 ? kPauseMin : std::min(search_pause_ * 2, kPauseMax);
    next_search_ = now + search_pause_;
    drop_connection();
    return true;
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
      if (reply.ok() && (*reply)->type != REDIS_REPLY_ERROR) return reply;
      failure = reply.ok() ? refused(text_of(**reply)) : reply.error();
      const bool is_dropped = !reply.ok() || (was_connected && drop_former_primary(text_of(**reply)));
      if (!was_connected || !is_dropped) break;
    }
    return failure;
  }

  // Returns the keys sorted. SCAN may return a key more than once.
  Result<std::vector<std::string>> keys_of(const std::string& prefix) {
    const std::string pattern = escaped(prefix) + '*';
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
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
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

  // Reads the replies to one write. Returns an error if the connection is broken. Otherwise `refusal` is the text of
  // the first refusal; empty: there is none.
  Status read_replies(size_t count, std::string& refusal) {
    const auto note = [&refusal](const redisReply& reply) {
      if (reply.type == REDIS_REPLY_ERROR && refusal.empty()) refusal = text_of(reply);
    };
    for (size_t i = 0; i < count; ++i) {
      TUFT_ASSIGN(const Reply reply, next_reply());
      note(*reply);
      for (size_t e = 0; reply->type == REDIS_REPLY_ARRAY && e < reply->elements; ++e) note(*reply->element[e]);
    }
    return {};
  }

  // Appends to `results`. Returns an error if the connection is gone before all writes have a result.
  Status write_rest(std::span<const Write> writes, std::vector<Status>& results, bool may_repeat) {
    std::vector<size_t> replies;
    for (size_t i = results.size(); i < writes.size(); ++i) replies.push_back(append_write(writes[i]));
    for (const size_t count : replies) {
      std::string refusal;
      TUFT_TRY(read_replies(count, refusal));
      if (refusal.empty()) {
        search_pause_ = next_search_ = 0;
        results.emplace_back();
        continue;
      }
      if (may_repeat && drop_former_primary(refusal)) return refused(refusal);
      results.emplace_back(refused(refusal));
    }
    return {};
  }

  const RedisUrl url_;
  const RedisTimeouts timeouts_;
  Connection connection_;
  Nanos pause_ = 0;
  Nanos next_try_ = 0;
  Error last_failure_;
  Nanos search_pause_ = 0;  // see drop_former_primary()
  Nanos next_search_ = 0;

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
