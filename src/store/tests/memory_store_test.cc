// Tests of the memory store and of the queue that all stores share.
#include "store/memory_store.h"

#include <chrono>
#include <future>
#include <thread>

#include "store/testing/contract_test.h"

namespace tuft::store {
namespace {

class MemoryStorage final : public Storage {
 public:
  Result<std::unique_ptr<KeyValue>> open() override { return make_memory_store(contents_); }

 private:
  std::shared_ptr<MemoryContents> contents_ = std::make_shared<MemoryContents>();
};

INSTANTIATE_TEST_SUITE_P(Memory, StoreContract,
                         ::testing::Values(Candidate{"memory", [] { return std::make_unique<MemoryStorage>(); }}));

TEST(StoreQueue, FullQueueRefusesUntilThereIsSpace) {
  const auto contents = std::make_shared<MemoryContents>();
  const auto store = make_memory_store(contents, {.operations_max = 2, .bytes_max = 1 << 20});
  contents->hold(true);
  std::atomic<int> answered = 0;
  const auto write = [&] { return store->write({.changes = {{"k", "v"}}}, [&](const Status&) { ++answered; }); };
  int accepted = 0;
  Status refused;
  // The thread takes some writes from the queue before it waits.
  for (int i = 0; i < 10'000 && refused.ok(); ++i) {
    refused = write();
    if (refused.ok()) ++accepted;
  }
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(refused.error().reason, "store_queue");
  contents->hold(false);
  while (answered < accepted) std::this_thread::yield();
  EXPECT_TRUE(write().ok());
  store->close(kSecond);
  EXPECT_EQ(answered, accepted + 1);
}

TEST(StoreQueue, BytesCountToo) {
  const auto contents = std::make_shared<MemoryContents>();
  const auto store = make_memory_store(contents, {.operations_max = 1000, .bytes_max = 1000});
  contents->hold(true);
  Status refused;
  for (int i = 0; i < 100 && refused.ok(); ++i) {
    refused = store->write({.changes = {{"k", std::string(600, 'v')}}}, [](const Status&) {});
  }
  EXPECT_EQ(refused.error().reason, "store_queue");
  contents->hold(false);
}

TEST(StoreHealth, FollowsTheOperations) {
  const auto contents = std::make_shared<MemoryContents>();
  const auto store = make_memory_store(contents);
  EXPECT_TRUE(store->health().ok());
  contents->set_reachable(false);
  EXPECT_EQ(write_and_wait(*store, {.changes = {{"k", "v"}}}).error().reason, "store_unreachable");
  EXPECT_EQ(store->health().error().code, ErrorCode::kUnavailable);
  contents->set_reachable(true);
  // The store is idle; the probe notices it.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!store->health().ok() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_TRUE(store->health().ok());
}

TEST(StoreHealth, AfterARefusedWriteOnlyAWriteRestoresHealth) {
  const auto contents = std::make_shared<MemoryContents>();
  const auto store = make_memory_store(contents);
  contents->set_writable(false);
  EXPECT_EQ(write_and_wait(*store, {.changes = {{"k", "v"}}}).error().reason, "store_readonly");
  EXPECT_TRUE(get_and_wait(*store, "k").ok());
  EXPECT_EQ(store->health().error().reason, "store_readonly");
  contents->set_writable(true);
  EXPECT_TRUE(get_and_wait(*store, "k").ok());
  EXPECT_EQ(store->health().error().reason, "store_readonly");
  EXPECT_TRUE(write_and_wait(*store, {.changes = {{"k", "v"}}}).ok());
  EXPECT_TRUE(store->health().ok());
}

TEST(StoreClose, CloseEndsWithinItsBudgetIfTheStoreHangs) {
  const auto contents = std::make_shared<MemoryContents>();
  const auto store = make_memory_store(contents);
  contents->hold(true);
  std::vector<Status> answers;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(store->write({.changes = {{"k", "v"}}}, [&](const Status& status) { answers.push_back(status); }).ok());
  }
  store->close(20 * kMillisecond);
  ASSERT_EQ(answers.size(), 3U);
  for (const Status& answer : answers) EXPECT_EQ(answer.error().reason, "store_closed");
}

}  // namespace
}  // namespace tuft::store
