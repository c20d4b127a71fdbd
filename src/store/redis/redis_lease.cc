#include "store/redis/redis_lease.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/id.h"
#include "store/redis/redis_connection.h"

namespace tuft::store {
namespace {

constexpr Nanos kPauseMax = 100 * kMillisecond;

// A token is "<epoch>:<holder>". The number is a time in milliseconds, so that it grows even if Redis has lost the
// former one; the holder makes it unique. The lease is "<token> <address>".
//
// Keys: leader, epoch, standby. Arguments: holder, address, milliseconds. Returns whether this server leads, the token,
// the address of the leader, and the milliseconds that its lease still lasts.
constexpr std::string_view kTake = R"(
local lease = redis.call('GET', KEYS[1])
local last = redis.call('GET', KEYS[2]) or '0:'
if lease then
  local token, address = string.match(lease, '^(%S+) (.*)$')
  if token == last and string.match(last, ':(.*)$') == ARGV[1] then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
    return {1, last, ARGV[2], tonumber(ARGV[3])}
  end
  redis.call('SET', KEYS[3], ARGV[1], 'PX', ARGV[3])
  return {0, last, address or '', redis.call('PTTL', KEYS[1])}
end
local now = redis.call('TIME')
local epoch = math.max((tonumber(string.match(last, '^%d+')) or 0) + 1, now[1] * 1000 + math.floor(now[2] / 1000))
local token = string.format('%.0f', epoch) .. ':' .. ARGV[1]
redis.call('SET', KEYS[2], token)
redis.call('SET', KEYS[1], token .. ' ' .. ARGV[2], 'PX', ARGV[3])
if redis.call('GET', KEYS[3]) == ARGV[1] then redis.call('DEL', KEYS[3]) end
return {1, token, ARGV[2], tonumber(ARGV[3])}
)";

// Keys: the same. Arguments: token, address, milliseconds. Returns whether this server leads, and whether one stands
// by. A term goes on if Redis has lost its data, because nobody has led since.
constexpr std::string_view kRenew = R"(
local newest = redis.call('GET', KEYS[2])
if not newest then redis.call('SET', KEYS[2], ARGV[1]) elseif newest ~= ARGV[1] then return {0, 0} end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[3])
return {1, redis.call('EXISTS', KEYS[3])}
)";

// Keys: the same. Argument: token.
constexpr std::string_view kRelease = R"(
if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
)";

class RedisLease final : public Lease {
 public:
  RedisLease(const RedisUrl& url, const RedisLeaseOptions& options)
      : connection_(url, {.connect = options.timeout, .answer = options.timeout, .pause_max = kPauseMax}),
        leader_key_(options.name_space + ":leader"),
        epoch_key_(options.name_space + ":epoch"),
        standby_key_(options.name_space + ":standby"),
        holder_(random_uuid()) {}

  Result<Standing> take(Nanos length, const std::string& address) override {
    const std::string milliseconds = std::to_string(length / kMillisecond);
    TUFT_ASSIGN(const RedisReply reply, run(kTake, {holder_, address, milliseconds}, 4));
    Standing standing;
    standing.leads = reply->element[0]->integer == 1;
    standing.token = text_of(*reply->element[1]);
    standing.leader = text_of(*reply->element[2]);
    standing.ends_in = std::max<Nanos>(0, reply->element[3]->integer) * kMillisecond;
    const char* const begin = standing.token.data();
    std::from_chars(begin, begin + standing.token.size(), standing.epoch);
    if (standing.leads) token_ = standing.token;
    return standing;
  }

  Result<Renewal> renew(Nanos length, const std::string& address) override {
    const std::string milliseconds = std::to_string(length / kMillisecond);
    TUFT_ASSIGN(const RedisReply reply, run(kRenew, {token_, address, milliseconds}, 2));
    return Renewal{reply->element[0]->integer == 1, reply->element[1]->integer == 1};
  }

  Status release() override {
    const Result<RedisReply> reply = run(kRelease, {token_}, 0);
    return reply.ok() ? Status() : Status(reply.error());
  }

  std::string fence_key() const override { return epoch_key_; }

 private:
  // Requires that the script returns a list of `elements`; 0: one value.
  Result<RedisReply> run(std::string_view script, RedisCommand arguments, size_t elements) {
    RedisCommand command{"EVAL", script, "3", leader_key_, epoch_key_, standby_key_};
    command.insert(command.end(), arguments.begin(), arguments.end());
    TUFT_ASSIGN(RedisReply reply, connection_.ask(command));
    const bool is_list = reply->type == REDIS_REPLY_ARRAY;
    if (elements > 0 && (!is_list || reply->elements != elements)) return connection_.unexpected();
    return reply;
  }

  RedisConnection connection_;
  const std::string leader_key_, epoch_key_, standby_key_;
  const std::string holder_;  // of this process
  std::string token_;
};

}  // namespace

std::unique_ptr<Lease> make_redis_lease(const RedisUrl& url, const RedisLeaseOptions& options) {
  return std::make_unique<RedisLease>(url, options);
}

}  // namespace tuft::store
