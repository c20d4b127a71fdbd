// The room in front of the store: what one user sends does not cost what another sends, nor what is of the server.
#include <gtest/gtest.h>

#include "base/mutex.h"
#include "telemetry_store/store_thread.h"
#include "telemetry_store/tests/store_fixture.h"

namespace tuft::telemetry_store {
namespace {

using internal::Item;
using internal::kItemBytes;
using internal::Records;
using internal::Snapshot;
using internal::StoreThread;

constexpr size_t kBody = 10'000;
constexpr size_t kOfUser = 2 * (kBody + kItemBytes);

Item records(const std::string& owner, size_t bytes = kBody) {
  return Records{RecordType::kLogs, std::string(bytes, 'x'), {.owner = owner}};
}

// A queue whose thread takes one item and then waits, so that what is pushed stays.
class Queue : public ::testing::Test {
 protected:
  Queue() {
    EXPECT_TRUE(thread_.push(records("", 1)));
    MutexLock lock(mutex_);
    while (!is_held_) changed_.wait(mutex_);
  }
  ~Queue() override { let_go(); }

  void let_go() {
    MutexLock lock(mutex_);
    may_go_ = true;
    changed_.notify_all();
  }

  Mutex mutex_;
  CondVar changed_;
  bool is_held_ TUFT_GUARDED_BY(mutex_) = false;
  bool may_go_ TUFT_GUARDED_BY(mutex_) = false;
  StoreThread thread_{{.of_server = kOfUser, .of_user = kOfUser, .of_users = 3 * kOfUser},
                      {.work =
                           [this](Item) {
                             MutexLock lock(mutex_);
                             is_held_ = true;
                             changed_.notify_all();
                             while (!may_go_) changed_.wait(mutex_);
                           },
                       .pause = [] {}}};
};

TEST_F(Queue, AUserFillsTheirPartThenOthersAndTheServerHaveTheirs) {
  EXPECT_TRUE(thread_.push(records("alice")));
  EXPECT_TRUE(thread_.push(Snapshot{std::string(kBody, 'x'), {.owner = "alice"}}));
  EXPECT_FALSE(thread_.push(records("alice", 1)));
  EXPECT_FALSE(thread_.push(Snapshot{"x", {.owner = "alice"}}));
  EXPECT_TRUE(thread_.push(records("bob", 2 * kBody))) << "the longest that a user may send";
  EXPECT_TRUE(thread_.push(records("", kBody)));
  EXPECT_TRUE(thread_.push(RunStep{}));
}

TEST_F(Queue, AllUsersTogetherThenBounded) {
  for (const char* user : {"alice", "bob", "carol"}) EXPECT_TRUE(thread_.push(records(user, 2 * kBody))) << user;
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(thread_.push(records("user" + std::to_string(i)))) << i;
  EXPECT_TRUE(thread_.push(records("", kBody))) << "they take no room of the server";
}

TEST_F(Queue, WorkedOffThenThereIsRoomAgain) {
  EXPECT_TRUE(thread_.push(records("alice", 2 * kBody)));
  EXPECT_FALSE(thread_.push(records("alice", 1)));
  let_go();
  ASSERT_TRUE(thread_.settle(20 * kSecond));
  EXPECT_TRUE(thread_.push(records("alice", 2 * kBody)));
}

// With as little memory as the configuration allows, and with its default.
TEST(RequestBytesMax, ARequestOfThatSizeIsKept) {
  FakeClock clock;
  for (const int64_t memory : {int64_t{8} << 20, int64_t{64} << 20}) {
    const auto store = Store::open({.memory_bytes_max = memory}, clock);
    EXPECT_EQ(store->request_bytes_max(), memory / 16);
    std::vector<BuiltLog> logs;
    while (logs.size() < 8) {
      const auto most = static_cast<size_t>(store->request_bytes_max()) / 8 - 100;
      logs.push_back({.time = clock.wall(), .body = std::string(most, 'x')});
    }
    const std::string request = build_logs(logs);
    ASSERT_LE(request.size(), static_cast<size_t>(store->request_bytes_max()));
    EXPECT_TRUE(store->add(RecordType::kLogs, request, {.owner = "alice"}));
    ASSERT_TRUE(store->settle(20 * kSecond));
    EXPECT_EQ(store->state().logs, 8U);
    const std::string longer(static_cast<size_t>(store->request_bytes_max()) + 1, 'x');
    EXPECT_FALSE(store->add(RecordType::kLogs, longer, {.owner = "alice"}));
    EXPECT_FALSE(store->add_metrics(longer, {.owner = "alice"}));
    EXPECT_EQ(store->state().dropped_records, 0U) << "its sender is told";
  }
}

}  // namespace
}  // namespace tuft::telemetry_store
