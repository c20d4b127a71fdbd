#include "store/redis/redis_store.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "store/testing/contract_test.h"
#include "store/testing/redis_server.h"

namespace tuft::store {
namespace {

RedisUrl url_of(const RedisServer& server, const std::string& login = "") {
  auto url = parse_redis_url("unix://" + login + server.socket());
  EXPECT_TRUE(url.ok());
  return *url;
}

class RedisStorage final : public Storage {
 public:
  Result<std::unique_ptr<KeyValue>> open() override { return open_redis_store(url_of(server_)); }

 private:
  RedisServer server_;
};

INSTANTIATE_TEST_SUITE_P(Redis, StoreContract,
                         ::testing::Values(Candidate{"redis", [] { return std::make_unique<RedisStorage>(); },
                                                     RedisServer::why_missing}));

class RedisStore : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = RedisServer::why_missing(); !why.empty()) GTEST_SKIP() << why;
  }
  static bool eventually(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }
};

Status put(KeyValue& store, const std::string& key, const std::string& value) {
  return write_and_wait(store, {.changes = {{key, value}}});
}

TEST_F(RedisStore, KilledServerIsAnErrorUntilItIsBack) {
  RedisServer server;
  const auto store = open_redis_store(url_of(server));
  ASSERT_TRUE(store.ok()) << store.error().message;
  ASSERT_TRUE(put(**store, "before", "1").ok());
  server.kill();
  const Status refused = put(**store, "during", "1");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(refused.error().reason, "store_unreachable");
  EXPECT_NE(refused.error().message.find(server.socket()), std::string::npos) << refused.error().message;
  EXPECT_FALSE((*store)->health().ok());
  // Meanwhile operations fail at once, because the server is known to be unreachable.
  EXPECT_FALSE(put(**store, "during", "1").ok());
  server.start();
  // The store is idle; the probe reconnects.
  EXPECT_TRUE(eventually([&] { return (*store)->health().ok(); }));
  EXPECT_EQ(**get_and_wait(**store, "before"), "1");
  EXPECT_TRUE(put(**store, "after", "1").ok());
}

TEST_F(RedisStore, UnnoticedRestartIsNoError) {
  RedisServer server;
  const auto store = open_redis_store(url_of(server));
  ASSERT_TRUE(put(**store, "before", "1").ok());
  server.kill();
  server.start();
  EXPECT_TRUE(write_and_wait(**store, {.changes = {{"a", "1"}, {"b", "2"}}}).ok());
  EXPECT_EQ(**get_and_wait(**store, "b"), "2");
}

TEST_F(RedisStore, HangingServerIsAnErrorInTime) {
  RedisServer server;
  const auto store = open_redis_store(url_of(server), {.connect = kSecond / 5, .answer = kSecond / 5});
  ASSERT_TRUE(put(**store, "before", "1").ok());
  server.pause(true);
  const auto began = std::chrono::steady_clock::now();
  const Status refused = put(**store, "during", "1");
  const auto took = std::chrono::steady_clock::now() - began;
  server.pause(false);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_LT(took, std::chrono::seconds(5));
  EXPECT_TRUE(eventually([&] { return put(**store, "after", "1").ok(); }));
}

TEST_F(RedisStore, MissingServerIsNamedWithoutThePassword) {
  const auto store = open_redis_store(*parse_redis_url("redis://:hush@127.0.0.1:1/0"));
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(store.error().message.find("127.0.0.1:1"), std::string::npos) << store.error().message;
  EXPECT_EQ(store.error().message.find("hush"), std::string::npos);
}

TEST_F(RedisStore, LogsInWithThePassword) {
  RedisServer server({"--requirepass", "hush"});
  EXPECT_TRUE(open_redis_store(url_of(server, ":hush@")).ok());
  EXPECT_TRUE(open_redis_store(url_of(server, "default:hush@")).ok());
  for (const std::string login : {"", ":wrong@", "nobody:hush@"}) {
    const auto store = open_redis_store(url_of(server, login));
    ASSERT_FALSE(store.ok());
    EXPECT_EQ(store.error().reason, "store_refused") << store.error().message;
    EXPECT_EQ(store.error().message.find("hush"), std::string::npos);
  }
}

TEST_F(RedisStore, DatabasesAreSeparate) {
  RedisServer server;
  RedisUrl other = url_of(server);
  other.database = 3;
  const auto first = open_redis_store(url_of(server));
  const auto second = open_redis_store(other);
  ASSERT_TRUE(put(**first, "k", "1").ok());
  EXPECT_FALSE(get_and_wait(**second, "k")->has_value());
}

TEST_F(RedisStore, FullServerRefusesWritesButReads) {
  RedisServer server({"--maxmemory", "3mb", "--maxmemory-policy", "noeviction"});
  const auto store = open_redis_store(url_of(server));
  ASSERT_TRUE(store.ok()) << store.error().message;
  ASSERT_TRUE(put(**store, "before", "1").ok());
  Status refused;
  for (int i = 0; i < 100 && refused.ok(); ++i)
    refused = put(**store, "k" + std::to_string(i), std::string(1 << 20, 'x'));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "store_full");
  EXPECT_EQ(**get_and_wait(**store, "before"), "1");
}

TEST_F(RedisStore, ReplicaRefusesWrites) {
  RedisServer server({"--replicaof", "127.0.0.1", "1"});
  const auto store = open_redis_store(url_of(server));
  ASSERT_TRUE(store.ok()) << store.error().message;
  const Status refused = write_and_wait(**store, {.changes = {{"a", "1"}, {"b", "1"}}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  // It still answers reads, but is not healthy.
  EXPECT_TRUE(get_and_wait(**store, "a").ok());
  EXPECT_EQ((*store)->health().error().reason, "store_readonly");
}

TEST_F(RedisStore, ClosesInTimeIfTheServerHangs) {
  RedisServer server;
  const auto store = open_redis_store(url_of(server), {.connect = 60 * kSecond, .answer = 60 * kSecond});
  ASSERT_TRUE(put(**store, "before", "1").ok());
  server.pause(true);
  std::atomic<int> failed = 0;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(
        (*store)->write({.changes = {{"during", "1"}}}, [&](const Status& status) { failed += !status.ok(); }).ok());
  }
  const auto began = std::chrono::steady_clock::now();
  (*store)->close(kSecond / 10);
  const auto took = std::chrono::steady_clock::now() - began;
  server.pause(false);
  EXPECT_LT(took, std::chrono::seconds(10));
  EXPECT_EQ(failed, 3);
}

}  // namespace
}  // namespace tuft::store
