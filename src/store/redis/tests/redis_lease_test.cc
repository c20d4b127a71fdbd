#include "store/redis/redis_lease.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "store/redis/redis_store.h"
#include "store/testing/contract_test.h"
#include "store/testing/redis_server.h"

namespace tuft::store {
namespace {

constexpr Nanos kShort = 200 * kMillisecond;
constexpr Nanos kLong = 30 * kSecond;
constexpr Nanos kTimeout = 500 * kMillisecond;

// A lease of a server with an address.
class NamedLease {
 public:
  NamedLease(std::unique_ptr<Lease> lease, std::string address)
      : lease_(std::move(lease)), address_(std::move(address)) {}
  Result<Lease::Standing> take(Nanos length) { return lease_->take(length, address_); }
  Result<Lease::Renewal> renew(Nanos length) { return lease_->renew(length, address_); }
  Status release() { return lease_->release(); }
  std::string fence_key() const { return lease_->fence_key(); }
  std::unique_ptr<Lease> give() { return std::move(lease_); }

 private:
  std::unique_ptr<Lease> lease_;
  const std::string address_;
};

std::unique_ptr<NamedLease> lease_of(const RedisServer& server, const std::string& address, Nanos timeout = kTimeout) {
  return std::make_unique<NamedLease>(
      make_redis_lease(*parse_redis_url(server.url()), {.name_space = "ns", .timeout = timeout}), address);
}

bool eventually(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

std::unique_ptr<KeyValue> fenced_store(const RedisServer& server, const Fence& fence) {
  auto store = open_redis_store(*parse_redis_url(server.url()), {}, {}, fence);
  EXPECT_TRUE(store.ok()) << (store.ok() ? "" : store.error().message);
  return std::move(store).value();
}

// The same contract holds with a fence.
class FencedStorage final : public Storage {
 public:
  Result<std::unique_ptr<KeyValue>> open() override {
    if (!fence_) {
      const auto lease = lease_of(server_, "a");
      TUFT_ASSIGN(const Lease::Standing standing, lease->take(kLong));
      fence_ = Fence{lease->fence_key(), standing.token, [] {}};
    }
    return open_redis_store(*parse_redis_url(server_.url()), {}, {}, fence_);
  }

 private:
  RedisServer server_;
  std::optional<Fence> fence_;
};

INSTANTIATE_TEST_SUITE_P(RedisWithFence, StoreContract,
                         ::testing::Values(Candidate{"redis_fenced", [] { return std::make_unique<FencedStorage>(); },
                                                     RedisServer::why_missing}));

class RedisLease : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = RedisServer::why_missing(); !why.empty()) GTEST_SKIP() << why;
    server_.emplace();
  }

  // Takes the lease as soon as that of another server has ended.
  static Lease::Standing take_over(NamedLease& lease, Nanos length = kLong) {
    Lease::Standing standing;
    EXPECT_TRUE(eventually([&] {
      standing = lease.take(length).value();
      return standing.leads;
    }));
    return standing;
  }

  std::optional<RedisServer> server_;
};

TEST_F(RedisLease, OneLeadsAndTheOtherLearnsWhoAndForHowLong) {
  const auto first = lease_of(*server_, "first:1"), second = lease_of(*server_, "second:1");
  const auto led = first->take(kLong);
  ASSERT_TRUE(led.ok()) << led.error().message;
  EXPECT_TRUE(led->leads);
  const auto stands_by = second->take(kLong);
  ASSERT_TRUE(stands_by.ok()) << stands_by.error().message;
  EXPECT_FALSE(stands_by->leads);
  EXPECT_EQ(stands_by->leader, "first:1");
  EXPECT_EQ(stands_by->epoch, led->epoch);
  EXPECT_GT(stands_by->ends_in, kLong / 2);
  EXPECT_LE(stands_by->ends_in, kLong);
}

TEST_F(RedisLease, TakingTwiceIsOneTerm) {
  const auto lease = lease_of(*server_, "a");
  const uint64_t epoch = lease->take(kLong)->epoch;
  const auto again = lease->take(kLong);
  EXPECT_TRUE(again->leads);
  EXPECT_EQ(again->epoch, epoch);
}

TEST_F(RedisLease, ALeaseThatIsNotRenewedIsTakenWithAHigherEpoch) {
  const auto first = lease_of(*server_, "a"), second = lease_of(*server_, "b");
  const uint64_t epoch = first->take(kShort)->epoch;
  const Lease::Standing standing = take_over(*second);
  EXPECT_GT(standing.epoch, epoch);
  const auto renewal = first->renew(kLong);
  ASSERT_TRUE(renewal.ok()) << renewal.error().message;
  EXPECT_FALSE(renewal->leads);
  EXPECT_EQ(second->take(kLong)->leader, "b");
}

TEST_F(RedisLease, ARenewedLeaseIsNotTakenAndShowsTheStandby) {
  const auto first = lease_of(*server_, "a"), second = lease_of(*server_, "b");
  ASSERT_TRUE(first->take(kShort)->leads);
  EXPECT_FALSE(first->renew(kLong)->has_standby);
  EXPECT_FALSE(second->take(kLong)->leads);
  const auto renewal = first->renew(kLong);
  EXPECT_TRUE(renewal->leads);
  EXPECT_TRUE(renewal->has_standby);
}

TEST_F(RedisLease, AReleasedLeaseIsTakenAtOnce) {
  const auto first = lease_of(*server_, "a"), second = lease_of(*server_, "b");
  ASSERT_TRUE(first->take(kLong)->leads);
  ASSERT_TRUE(first->release().ok());
  EXPECT_TRUE(second->take(kLong)->leads);
  // A release of the former term has no effect on the next one.
  ASSERT_TRUE(first->release().ok());
  EXPECT_FALSE(first->take(kLong)->leads);
}

TEST_F(RedisLease, TheEpochGrowsEvenWhenRedisHasLostIt) {
  const auto first = lease_of(*server_, "a"), second = lease_of(*server_, "b");
  const uint64_t epoch = first->take(kLong)->epoch;
  server_->command("FLUSHALL");
  const Lease::Standing standing = second->take(kLong).value();
  EXPECT_TRUE(standing.leads);
  EXPECT_GE(standing.epoch, epoch);
  EXPECT_FALSE(first->renew(kLong)->leads);
}

TEST_F(RedisLease, WritesOfAFormerTermAreRefusedAndChangeNothing) {
  std::atomic<int> refusals = 0;
  const auto first = lease_of(*server_, "a"), second = lease_of(*server_, "b");
  const Lease::Standing led = first->take(kShort).value();
  const auto old_store = fenced_store(*server_, {first->fence_key(), led.token, [&] { ++refusals; }});
  ASSERT_TRUE(write_and_wait(*old_store, {.changes = {{"ns::a", "1"}, {"ns::b", "1"}}}).ok());
  const Lease::Standing next = take_over(*second);
  const auto new_store = fenced_store(*server_, {second->fence_key(), next.token, [] {}});
  for (const Write& write : {Write{.changes = {{"ns::a", "2"}, {"ns::c", "2"}}}, Write{.changes = {{"ns::b", {}}}}}) {
    const Status refused = write_and_wait(*old_store, write);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().reason, "not_leader") << refused.error().message;
  }
  EXPECT_EQ(refusals, 2);
  EXPECT_EQ(**get_and_wait(*new_store, "ns::a"), "1");
  EXPECT_EQ(**get_and_wait(*new_store, "ns::b"), "1");
  EXPECT_FALSE(get_and_wait(*new_store, "ns::c")->has_value());
  EXPECT_TRUE(write_and_wait(*new_store, {.changes = {{"ns::a", "3"}}}).ok());
}

TEST_F(RedisLease, LargeValuesAreFencedToo) {
  const std::string large(1 << 20, 'l'), other(1 << 20, 'o');
  const auto first = lease_of(*server_, "a"), second = lease_of(*server_, "b");
  const Lease::Standing led = first->take(kShort).value();
  const auto old_store = fenced_store(*server_, {first->fence_key(), led.token, [] {}});
  ASSERT_TRUE(
      write_and_wait(*old_store, {.changes = {{"ns::a", large}, {"ns::b", large, kLong}, {"ns::c", "1"}}}).ok());
  EXPECT_EQ(**get_and_wait(*old_store, "ns::a"), large);
  EXPECT_EQ(server_->command("TTL ns::a").substr(0, 3), ":-1");
  const std::string life = server_->command("PTTL ns::b");
  EXPECT_GT(std::stoll(life.substr(1)), kLong / kMillisecond / 2) << life;
  take_over(*second);
  EXPECT_FALSE(write_and_wait(*old_store, {.changes = {{"ns::a", other}, {"ns::b", other}}}).ok());
  EXPECT_EQ(**get_and_wait(*old_store, "ns::a"), large);
  EXPECT_EQ(**get_and_wait(*old_store, "ns::b"), large);
}

TEST_F(RedisLease, AFencedStoreLoadsItsScriptAgain) {
  const auto lease = lease_of(*server_, "a");
  const Lease::Standing led = lease->take(kLong).value();
  const auto store = fenced_store(*server_, {lease->fence_key(), led.token, [] {}});
  ASSERT_TRUE(write_and_wait(*store, {.changes = {{"ns::a", "1"}}}).ok());
  server_->command("SCRIPT FLUSH");
  EXPECT_TRUE(write_and_wait(*store, {.changes = {{"ns::a", "2"}}}).ok());
  EXPECT_EQ(**get_and_wait(*store, "ns::a"), "2");
}

TEST_F(RedisLease, AFencedStoreSaysThatRedisIsFull) {
  const auto lease = lease_of(*server_, "a");
  const Lease::Standing led = lease->take(kLong).value();
  const auto store = fenced_store(*server_, {lease->fence_key(), led.token, [] {}});
  server_->command("CONFIG SET maxmemory 1");
  const Status refused = write_and_wait(*store, {.changes = {{"ns::a", "1"}}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, kOutOfMemory) << refused.error().message;
  const Status large = write_and_wait(*store, {.changes = {{"ns::a", std::string(1 << 20, 'l')}}});
  EXPECT_EQ(large.error().reason, kOutOfMemory) << large.error().message;
  EXPECT_TRUE(write_and_wait(*store, {.changes = {{"ns::a", {}}}}).ok()) << "a deletion makes room";
}

// ---- Leadership, which keeps a lease

struct Contender {
  Contender(const RedisServer& server, const std::string& address, Nanos length)
      : leadership(lease_of(server, address, length / 3)->give(),
                   {.lease = length, .address = address, .on_lost = [this](LeaderLoss why) {
                      loss = static_cast<int>(why);
                    }}) {}

  std::atomic<int> loss = -1;
  Leadership leadership;
};

TEST_F(RedisLease, ALeaderKeepsItsLeaseUntilItResigns) {
  Contender first(*server_, "a", kShort), second(*server_, "b", kShort);
  ASSERT_TRUE(first.leadership.campaign()->leads);
  EXPECT_TRUE(first.leadership.leads());
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(5 * kShort);
  while (std::chrono::steady_clock::now() < until) {
    ASSERT_FALSE(second.leadership.campaign()->leads);
    std::this_thread::yield();
  }
  EXPECT_EQ(first.loss, -1);
  first.leadership.resign();
  EXPECT_FALSE(first.leadership.leads());
  EXPECT_TRUE(second.leadership.campaign()->leads);
  EXPECT_EQ(first.loss, -1) << "resigning is no loss";
}

TEST_F(RedisLease, ALeaderWithAStandbyIsLostWhenRedisHangs) {
  Contender first(*server_, "a", kShort), second(*server_, "b", kShort);
  ASSERT_TRUE(first.leadership.campaign()->leads);
  ASSERT_FALSE(second.leadership.campaign()->leads);
  // It learns of the standby with a renewal.
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kShort);
  while (std::chrono::steady_clock::now() < until) {
    ASSERT_FALSE(second.leadership.campaign()->leads);
    std::this_thread::yield();
  }
  server_->pause(true);
  EXPECT_TRUE(eventually([&] { return first.loss != -1; }));
  server_->pause(false);
  EXPECT_EQ(first.loss, static_cast<int>(LeaderLoss::kLapsed));
  EXPECT_FALSE(first.leadership.leads());
}

TEST_F(RedisLease, ALeaderAloneGoesOnAfterRedisWasAway) {
  server_.emplace(std::vector<std::string>{"--appendfsync", "always"});  // so that the kill loses nothing
  Contender only(*server_, "a", kShort);
  const uint64_t epoch = only.leadership.campaign()->epoch;
  const auto store = fenced_store(*server_, only.leadership.fence());
  server_->kill();
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(3 * kShort);
  while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_TRUE(only.leadership.leads());
  server_->start();
  EXPECT_TRUE(eventually([&] { return write_and_wait(*store, {.changes = {{"ns::a", "1"}}}).ok(); }));
  // The lease is its own again, in the same term.
  EXPECT_TRUE(eventually(
      [&] { return server_->command("GET ns:leader").find(std::to_string(epoch) + ":") != std::string::npos; }));
  EXPECT_EQ(only.loss, -1);
}

TEST_F(RedisLease, ATermGoesOnWhenRedisHasLostItsData) {
  Contender leader(*server_, "a", kShort);
  const uint64_t epoch = leader.leadership.campaign()->epoch;
  const auto store = fenced_store(*server_, leader.leadership.fence());
  server_->command("FLUSHALL");
  EXPECT_TRUE(write_and_wait(*store, {.changes = {{"ns::a", "1"}}}).ok());
  server_->command("FLUSHALL");
  EXPECT_TRUE(eventually(
      [&] { return server_->command("GET ns:leader").find(std::to_string(epoch) + ":") != std::string::npos; }));
  EXPECT_EQ(leader.loss, -1);
}

TEST_F(RedisLease, ALeaderAloneThatWasReplacedIsLost) {
  Contender former(*server_, "a", kShort);
  ASSERT_TRUE(former.leadership.campaign()->leads);
  server_->command("DEL ns:leader");
  const auto other = lease_of(*server_, "b");
  // Its renewals and this one race for the lease.
  EXPECT_TRUE(eventually([&] {
    server_->command("DEL ns:leader");
    return other->take(kLong)->leads;
  }));
  EXPECT_TRUE(eventually([&] { return former.loss != -1; }));
  EXPECT_EQ(former.loss, static_cast<int>(LeaderLoss::kSuperseded));
  EXPECT_FALSE(former.leadership.leads());
}

TEST_F(RedisLease, ARefusedWriteEndsTheLeader) {
  Contender former(*server_, "a", kLong);
  ASSERT_TRUE(former.leadership.campaign()->leads);
  const auto store = fenced_store(*server_, former.leadership.fence());
  server_->command("DEL ns:leader");
  ASSERT_TRUE(lease_of(*server_, "b")->take(kLong)->leads);
  EXPECT_FALSE(write_and_wait(*store, {.changes = {{"ns::a", "1"}}}).ok());
  EXPECT_EQ(former.loss, static_cast<int>(LeaderLoss::kFenced));
  EXPECT_FALSE(former.leadership.leads());
}

}  // namespace
}  // namespace tuft::store
