#include "store/redis/redis_connection.h"

#include <algorithm>
#include <cerrno>
#include <sys/socket.h>
#include <sys/time.h>
#include <utility>

#include "store/key_value.h"

namespace tuft::store {
namespace {

constexpr Nanos kPauseMin = 100 * kMillisecond;

timeval to_timeval(Nanos nanos) {
  return {static_cast<time_t>(nanos / kSecond), static_cast<suseconds_t>(nanos % kSecond / kMicrosecond)};
}

// What was not acknowledged is sent again over the next connection. If the kernel went on sending the rest of this one,
// which it does for minutes after a close(), Redis would execute a former write after a newer one.
void discard_unsent(int descriptor) {
  const linger none = {.l_onoff = 1, .l_linger = 0};
  ::setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}

// Returns the word with which an error of Redis begins.
std::string_view word_of(std::string_view error) {
  return error.substr(0, error.find(' '));
}

}  // namespace

std::string_view text_of(const redisReply& reply) {
  return reply.str == nullptr ? std::string_view() : std::string_view(reply.str, reply.len);
}

RedisConnection::RedisConnection(RedisUrl url, const RedisTimeouts& timeouts, std::string_view script)
    : url_(std::move(url)), timeouts_(timeouts), script_(script) {}

void RedisConnection::interrupt() {
  MutexLock lock(socket_mutex_);
  interrupted_ = true;
  if (socket_ >= 0) ::shutdown(socket_, SHUT_RDWR);
}

Status RedisConnection::connect() {
  if (connection_ != nullptr) return {};
  if (system_clock().monotonic() < next_try_) return last_failure_;
  Status made = make_connection();
  if (!made.ok()) {
    drop();
    pause_ = pause_ == 0 ? kPauseMin : std::min(pause_ * 2, timeouts_.pause_max);
    next_try_ = system_clock().monotonic() + pause_;
    last_failure_ = made.error();
    return made;
  }
  pause_ = 0;
  return {};
}

Status RedisConnection::make_connection() {
  const timeval connect_timeout = to_timeval(timeouts_.connect);
  connection_.reset(url_.socket.empty() ? redisConnectWithTimeout(url_.host.c_str(), url_.port, connect_timeout)
                                        : redisConnectUnixWithTimeout(url_.socket.c_str(), connect_timeout));
  if (connection_ == nullptr) return unavailable(url_.name() + ": out of memory", "store_unreachable");
  if (connection_->err != 0) return broken();
  if (!register_socket()) return unavailable(url_.name() + " is closed", "store_closed");
  if (redisSetTimeout(connection_.get(), to_timeval(timeouts_.answer)) != REDIS_OK) return broken();
  if (!url_.password.empty()) {
    RedisCommand login{"AUTH"};
    if (!url_.user.empty()) login.push_back(url_.user);
    login.push_back(url_.password);
    TUFT_TRY(exchange(login));
  }
  TUFT_TRY(check_mode());
  if (url_.database != 0) TUFT_TRY(exchange({"SELECT", std::to_string(url_.database)}));
  TUFT_TRY(load_script());
  return exchange({"PING"});
}

Status RedisConnection::load_script() {
  if (script_.empty()) return {};
  append({"SCRIPT", "LOAD", script_});
  TUFT_ASSIGN(const RedisReply reply, next_reply());
  if (reply->type == REDIS_REPLY_ERROR) return refused(text_of(*reply));
  script_sha_ = text_of(*reply);
  return {};
}

// A user who may not ask for the mode learns it from the first command that is redirected.
Status RedisConnection::check_mode() {
  append({"INFO", "server"});
  TUFT_ASSIGN(const RedisReply reply, next_reply());
  const std::string_view info = text_of(*reply);
  if (info.find("redis_mode:cluster") != std::string_view::npos) return is_cluster();
  if (info.find("redis_mode:sentinel") == std::string_view::npos) return {};
  return unavailable(url_.name() +
                         " is a Sentinel, which keeps no data: configure an address in persistence.redis_url that "
                         "always leads to the primary",
                     "store_refused");
}

Error RedisConnection::is_cluster() const {
  return unavailable(url_.name() +
                         " is a node of a Redis Cluster, which is not supported: configure a single primary in "
                         "persistence.redis_url",
                     "store_refused");
}

// Makes the socket known to interrupt(). Returns false if interrupt() was called before.
bool RedisConnection::register_socket() {
  MutexLock lock(socket_mutex_);
  if (interrupted_) return false;
  socket_ = connection_->fd;
  return true;
}

void RedisConnection::drop() {
  {
    MutexLock lock(socket_mutex_);
    socket_ = -1;
  }
  if (connection_ != nullptr) discard_unsent(connection_->fd);
  connection_.reset();
}

// Drops the connection and returns its error.
Error RedisConnection::broken() {
  const bool timed_out = connection_->err == REDIS_ERR_IO && (errno == EAGAIN || errno == ETIMEDOUT);
  const std::string cause = timed_out ? "timeout" : std::string(connection_->errstr);
  drop();
  return unavailable(url_.name() + ": " + cause, timed_out ? "store_timeout" : "store_unreachable");
}

Error RedisConnection::unexpected() {
  drop();
  return unavailable(url_.name() + " sent an unexpected answer", "store_io");
}

Error RedisConnection::refused(std::string_view text) const {
  const std::string word(word_of(text));
  const std::string what = url_.name() + " refused the operation with " + word;
  if (word == kNotLeader) {
    return failed_precondition(url_.name() + ": another server leads this namespace now, so nothing was written",
                               "not_leader");
  }
  if (word == "OOM") return unavailable(what + ": its memory exceeds maxmemory", kOutOfMemory);
  if (word == "READONLY") return unavailable(what + ": it is a replica; configure the primary", "store_readonly");
  if (word == "MISCONF") return unavailable(what + ": it cannot write to its disk", "store_full");
  if (word == "LOADING") return unavailable(what + ": it is still loading its data", "store_unreachable");
  if (word == "MASTERDOWN") {
    return unavailable(what + ": it is a replica without a primary; configure the primary", "store_unreachable");
  }
  if (word == "NOSCRIPT") return unavailable(what + ": it has lost the script", "store_unreachable");
  if (word == "MOVED" || word == "ASK" || word == "CROSSSLOT" || word == "CLUSTERDOWN") return is_cluster();
  if (word == "NOAUTH" || word == "WRONGPASS" || word == "NOPERM") {
    return unavailable(
        what +
            ": persistence.redis_url must name a user and password that it accepts, who may also run scripts (EVALSHA)",
        "store_refused");
  }
  return unavailable(what, "store_refused");
}

bool RedisConnection::drop_former_primary(std::string_view refusal) {
  const std::string_view word = word_of(refusal);
  if (word != "READONLY" && word != "LOADING" && word != "MASTERDOWN" && word != "NOSCRIPT") return false;
  const Nanos now = system_clock().monotonic();
  if (now < next_search_) return false;
  search_pause_ = search_pause_ == 0 ? kPauseMin : std::min(search_pause_ * 2, timeouts_.pause_max);
  next_search_ = now + search_pause_;
  drop();
  return true;
}

void RedisConnection::append(const RedisCommand& command) {
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

Result<RedisReply> RedisConnection::next_reply() {
  void* reply = nullptr;
  if (redisGetReply(connection_.get(), &reply) != REDIS_OK || reply == nullptr) return broken();
  return RedisReply(static_cast<redisReply*>(reply));
}

Status RedisConnection::exchange(const RedisCommand& command) {
  append(command);
  TUFT_ASSIGN(const RedisReply reply, next_reply());
  if (reply->type == REDIS_REPLY_ERROR) return refused(text_of(*reply));
  return {};
}

Result<RedisReply> RedisConnection::ask(const RedisCommand& command) {
  Error failure;
  for (int attempt = 0; attempt < 2; ++attempt) {
    const bool was_connected = connection_ != nullptr;
    TUFT_TRY(connect());
    append(command);
    Result<RedisReply> reply = next_reply();
    if (reply.ok() && (*reply)->type != REDIS_REPLY_ERROR) return reply;
    failure = reply.ok() ? refused(text_of(**reply)) : reply.error();
    const bool is_dropped = !reply.ok() || (was_connected && drop_former_primary(text_of(**reply)));
    if (!was_connected || !is_dropped) break;
  }
  return failure;
}

}  // namespace tuft::store
