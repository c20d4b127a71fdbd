#include "store/redis/redis_store.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/id.h"

namespace tuft::store {
namespace {

constexpr std::string_view kScanCount = "1000";
constexpr size_t kReadGroup = 256;

// Keys: that of the fence, then those of the changes. Arguments: the token, then two for each change: "-" for a
// deletion or the milliseconds to live, empty for ever; and the value. With ">" before the milliseconds the value has
// been staged: it is that of another key, whose name is given. If Redis has lost its data, nobody has led since, and
// the term goes on. The first error ends the write, as in the form without a fence: what was written before it stays,
// and the write is repeated.
constexpr std::string_view kFencedWrite = R"(
local newest = redis.call('GET', KEYS[1])
if not newest then redis.call('SET', KEYS[1], ARGV[1])
elseif newest ~= ARGV[1] then return redis.error_reply('NOTLEADER another server leads') end
for i = 2, #KEYS do
  local life, value = ARGV[2 * i - 2], ARGV[2 * i - 1]
  local reply
  if life == '-' then reply = redis.pcall('DEL', KEYS[i])
  elseif life == '' then reply = redis.pcall('SET', KEYS[i], value)
  elseif string.sub(life, 1, 1) ~= '>' then reply = redis.pcall('SET', KEYS[i], value, 'PX', life)
  else
    reply = redis.pcall('RENAME', value, KEYS[i])
    if life == '>' then redis.pcall('PERSIST', KEYS[i]) else redis.pcall('PEXPIRE', KEYS[i], string.sub(life, 2)) end
  end
  if type(reply) == 'table' and reply.err then return reply end
end
return redis.status_reply('OK')
)";

// A script copies what it is given, which takes Redis longer than to store it. So larger values are staged: written
// under a key of their own, which the script then renames. What is staged in vain expires.
constexpr size_t kStagedBytesMin = 16 << 10;
constexpr std::string_view kStagedMilliseconds = "60000";

std::string milliseconds_of(Nanos time_to_live) {
  return std::to_string(std::max<Nanos>(1, time_to_live / kMillisecond));
}

std::string common_beginning(const Prefixes& prefixes) {
  std::string common = prefixes.empty() ? "" : prefixes.front();
  for (const std::string& prefix : prefixes) {
    const auto end = std::mismatch(common.begin(), common.end(), prefix.begin(), prefix.end()).first;
    common.erase(end, common.end());
  }
  return common;
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

class RedisBackend final : public Backend {
 public:
  RedisBackend(const RedisUrl& url, const RedisTimeouts& timeouts, std::optional<Fence> fence)
      : connection_(url, timeouts, fence ? kFencedWrite : std::string_view()), fence_(std::move(fence)) {}

  std::vector<Status> write(std::span<const Write> writes) override {
    std::vector<Status> results;
    results.reserve(writes.size());
    // The connection may have broken while it was idle, or lead to a former primary, so try once more. Repeating a
    // write is harmless.
    for (int attempt = 0; attempt < 2; ++attempt) {
      const bool may_repeat = connection_.is_made() && attempt == 0;
      Status connected = connection_.connect();
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
    TUFT_ASSIGN(const RedisReply reply, connection_.ask({"GET", key}));
    if (reply->type == REDIS_REPLY_NIL) return std::optional<std::string>();
    return std::optional<std::string>(text_of(*reply));
  }

  Result<std::vector<Entry>> scan_keys(const std::string& prefix) override {
    TUFT_ASSIGN(std::vector<std::string> keys, keys_of({prefix}));
    std::vector<Entry> entries;
    entries.reserve(keys.size());
    for (std::string& key : keys) entries.push_back({std::move(key), {}});
    return entries;
  }

  Result<std::vector<Entry>> scan(const Prefixes& prefixes) override {
    TUFT_ASSIGN(const std::vector<std::string> keys, keys_of(prefixes));
    std::vector<Entry> entries;
    for (size_t first = 0; first < keys.size(); first += kReadGroup) {
      const size_t last = std::min(keys.size(), first + kReadGroup);
      RedisCommand command{"MGET"};
      command.insert(command.end(), keys.begin() + static_cast<ptrdiff_t>(first),
                     keys.begin() + static_cast<ptrdiff_t>(last));
      TUFT_ASSIGN(const RedisReply values, connection_.ask(command));
      if (values->type != REDIS_REPLY_ARRAY || values->elements != last - first) return connection_.unexpected();
      for (size_t i = first; i < last; ++i) {
        const redisReply& value = *values->element[i - first];
        // Deleted meanwhile, or a foreign value of another type.
        if (value.type == REDIS_REPLY_STRING) entries.push_back({keys[i], std::string(text_of(value))});
      }
    }
    return entries;
  }

  Status probe() override {
    const Result<RedisReply> pong = connection_.ask({"PING"});
    return pong.ok() ? Status() : Status(pong.error());
  }

  void interrupt() override { connection_.interrupt(); }

 private:
  // Returns the keys sorted. SCAN looks at all keys whatever the pattern is, and may return a key more than once.
  Result<std::vector<std::string>> keys_of(const Prefixes& prefixes) {
    const std::string pattern = escaped(common_beginning(prefixes)) + '*';
    std::vector<std::string> keys;
    std::string cursor = "0";
    do {
      TUFT_ASSIGN(const RedisReply page, connection_.ask({"SCAN", cursor, "MATCH", pattern, "COUNT", kScanCount}));
      if (page->type != REDIS_REPLY_ARRAY || page->elements != 2) return connection_.unexpected();
      cursor = text_of(*page->element[0]);
      for (size_t i = 0; i < page->element[1]->elements; ++i) {
        const std::string_view key = text_of(*page->element[1]->element[i]);
        const auto begins = [&](const std::string& prefix) { return key.starts_with(prefix); };
        if (std::any_of(prefixes.begin(), prefixes.end(), begins)) keys.emplace_back(key);
      }
    } while (cursor != "0");
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    return keys;
  }

  // ---- writes, all sent before the first answer is read

  // Returns the number of its replies.
  size_t append_write(const Write& write) {
    if (fence_) return append_fenced(write);
    const bool grouped = write.changes.size() > 1;
    if (grouped) connection_.append({"MULTI"});
    for (const Change& change : write.changes) {
      if (!change.value) {
        connection_.append({"DEL", change.key});
      } else if (change.time_to_live) {
        connection_.append({"SET", change.key, *change.value, "PX", milliseconds_of(*change.time_to_live)});
      } else {
        connection_.append({"SET", change.key, *change.value});
      }
    }
    if (grouped) connection_.append({"EXEC"});
    return write.changes.size() + (grouped ? 2 : 0);
  }

  size_t append_fenced(const Write& write) {
    std::vector<std::string> lives, staged;
    lives.reserve(write.changes.size());
    staged.reserve(write.changes.size());
    RedisCommand keys, arguments;
    for (const Change& change : write.changes) {
      keys.emplace_back(change.key);
      lives.push_back(!change.value ? "-" : change.time_to_live ? milliseconds_of(*change.time_to_live) : "");
      std::string_view value = change.value ? std::string_view(*change.value) : std::string_view();
      if (value.size() >= kStagedBytesMin) {
        staged.push_back(fence_->key + ":staged:" + std::to_string(next_staged_++));
        connection_.append({"SET", staged.back(), value, "PX", kStagedMilliseconds});
        lives.back().insert(0, ">");
        value = staged.back();
      }
      arguments.emplace_back(lives.back());
      arguments.emplace_back(value);
    }
    const std::string count = std::to_string(write.changes.size() + 1);
    RedisCommand command{"EVALSHA", connection_.script_sha(), count, fence_->key};
    command.insert(command.end(), keys.begin(), keys.end());
    command.emplace_back(fence_->token);
    command.insert(command.end(), arguments.begin(), arguments.end());
    connection_.append(command);
    return 1 + staged.size();
  }

  // Reads the replies to one write. Returns an error if the connection is broken. Otherwise `refusal` is the text of
  // the first refusal; empty: there is none.
  Status read_replies(size_t count, std::string& refusal) {
    const auto note = [&refusal](const redisReply& reply) {
      if (reply.type == REDIS_REPLY_ERROR && refusal.empty()) refusal = text_of(reply);
    };
    for (size_t i = 0; i < count; ++i) {
      TUFT_ASSIGN(const RedisReply reply, connection_.next_reply());
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
        connection_.note_accepted();
        results.emplace_back();
        continue;
      }
      if (may_repeat && connection_.drop_former_primary(refusal)) return connection_.refused(refusal);
      results.emplace_back(connection_.refused(refusal));
      if (fence_ && results.back().error().reason == "not_leader") fence_->on_refused();
    }
    return {};
  }

  RedisConnection connection_;
  const std::optional<Fence> fence_;
  uint64_t next_staged_ = random_u64();  // so that two servers do not use one name
};

}  // namespace

Result<std::unique_ptr<KeyValue>> open_redis_store(const RedisUrl& url, const RedisTimeouts& timeouts,
                                                   const QueueLimits& limits, std::optional<Fence> fence) {
  auto backend = std::make_unique<RedisBackend>(url, timeouts, std::move(fence));
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
