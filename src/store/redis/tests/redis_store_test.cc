#include "store/redis/redis_store.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/testing/temp_dir.h"
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
  EXPECT_EQ(refused.error().reason, kOutOfMemory);
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

// The address is a symbolic link that a failover turns to the other server; the connection to the first one stays open.
class RedisFailover : public RedisStore {
 protected:
  void turn_to(const RedisServer& server) {
    const std::filesystem::path fresh = directory_.path() / "fresh";
    std::filesystem::create_symlink(server.socket(), fresh);
    std::filesystem::rename(fresh, directory_.path() / "address");
  }
  Result<std::unique_ptr<KeyValue>> open() const {
    return open_redis_store(*parse_redis_url("unix://" + (directory_.path() / "address").string()));
  }

 private:
  TempDir directory_;
};

TEST_F(RedisFailover, AWriteFindsTheNewPrimaryAtOnce) {
  RedisServer former, fresh;
  turn_to(former);
  const auto store = open();
  ASSERT_TRUE(put(**store, "before", "1").ok());
  ASSERT_EQ(former.command("REPLICAOF 127.0.0.1 1"), "+OK\r\n");
  turn_to(fresh);
  const Status written = write_and_wait(**store, {.changes = {{"a", "1"}, {"b", "1"}}});
  EXPECT_TRUE(written.ok()) << written.error().message;
  EXPECT_TRUE((*store)->health().ok());
  EXPECT_EQ(fresh.command("GET b"), "$1\r\n1\r\n");
}

TEST_F(RedisFailover, WritesThatWaitTogetherAllReachTheNewPrimary) {
  RedisServer former, fresh;
  turn_to(former);
  const auto store = open();
  ASSERT_EQ(former.command("REPLICAOF 127.0.0.1 1"), "+OK\r\n");
  turn_to(fresh);
  std::atomic<int> written = 0, answered = 0;
  for (int i = 0; i < 200; ++i) {
    const std::string value = std::to_string(i);
    ASSERT_TRUE((*store)
                    ->write({.changes = {{"k" + value, value}, {"last", value}}},
                            [&](const Status& status) {
                              written += status.ok();
                              ++answered;
                            })
                    .ok());
  }
  ASSERT_TRUE(eventually([&] { return answered == 200; }));
  EXPECT_EQ(written, 200);
  EXPECT_EQ(fresh.command("GET last"), "$3\r\n199\r\n");
  EXPECT_EQ(fresh.command("DBSIZE"), ":201\r\n");
}

TEST_F(RedisFailover, TheNewPrimaryIsFoundHoweverLateTheAddressTurns) {
  RedisServer former, fresh;
  turn_to(former);
  const auto store = open();
  ASSERT_TRUE(put(**store, "before", "1").ok());
  ASSERT_EQ(former.command("REPLICAOF 127.0.0.1 1"), "+OK\r\n");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(put(**store, "during", "1").error().reason, "store_readonly");
  turn_to(fresh);
  EXPECT_TRUE(eventually([&] { return put(**store, "after", "1").ok(); }));
  EXPECT_TRUE((*store)->health().ok());
}

TEST_F(RedisFailover, AReplicaThatBecomesThePrimaryAgainIsWritten) {
  RedisServer server;
  const auto store = open_redis_store(url_of(server));
  ASSERT_EQ(server.command("REPLICAOF 127.0.0.1 1"), "+OK\r\n");
  EXPECT_EQ(put(**store, "during", "1").error().reason, "store_readonly");
  ASSERT_EQ(server.command("REPLICAOF NO ONE"), "+OK\r\n");
  EXPECT_TRUE(eventually([&] { return put(**store, "after", "1").ok(); }));
  EXPECT_TRUE((*store)->health().ok());
}

TEST_F(RedisFailover, AReadFindsTheNewPrimaryBehindAReplicaThatIsCutOff) {
  RedisServer former({"--replica-serve-stale-data", "no"}), fresh;
  turn_to(former);
  const auto store = open();
  ASSERT_TRUE(put(**store, "before", "1").ok());
  ASSERT_EQ(former.command("REPLICAOF 127.0.0.1 1"), "+OK\r\n");
  EXPECT_EQ(get_and_wait(**store, "before").error().reason, "store_unreachable");
  ASSERT_EQ(fresh.command("SET before 2"), "+OK\r\n");
  turn_to(fresh);
  EXPECT_TRUE(eventually([&] { return get_and_wait(**store, "before").ok(); }));
  EXPECT_EQ(**get_and_wait(**store, "before"), "2");
}

TEST_F(RedisStore, ANodeOfAClusterIsRefusedWithAClearError) {
  RedisServer server({"--cluster-enabled", "yes"});
  const auto store = open_redis_store(url_of(server));
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().reason, "store_refused");
  EXPECT_NE(store.error().message.find("is a node of a Redis Cluster"), std::string::npos) << store.error().message;
  EXPECT_NE(store.error().message.find("persistence.redis_url"), std::string::npos);
}

// A user who may not ask for the mode learns it from the first redirection.
TEST_F(RedisStore, ARedirectionNamesTheCluster) {
  RedisServer server({"--cluster-enabled", "yes"});
  ASSERT_EQ(server.command("ACL SETUSER tuft on >hush allkeys +@all -info"), "+OK\r\n");
  const auto store = open_redis_store(url_of(server, "tuft:hush@"));
  ASSERT_TRUE(store.ok()) << store.error().message;
  const auto found = get_and_wait(**store, "k");
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find("is a node of a Redis Cluster"), std::string::npos) << found.error().message;
}

TEST_F(RedisStore, ASentinelIsRefusedWithAClearError) {
  const TempDir directory;
  const std::string file = directory.path() / "sentinel.conf";
  std::ofstream(file) << "protected-mode no\n";
  RedisServer server({file, "--sentinel"});
  const auto store = open_redis_store(url_of(server));
  ASSERT_FALSE(store.ok());
  EXPECT_NE(store.error().message.find("is a Sentinel"), std::string::npos) << store.error().message;
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
