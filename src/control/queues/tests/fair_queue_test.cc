#include "base/fair_queue.h"

#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "control/queues/dispatch_queue.h"
#include "control/queues/tenant_queue.h"
#include "control/tests/users.h"

namespace tuft::control {
namespace {

std::string drain(FairQueue<UserId, std::string>& queue, size_t count) {
  std::string order;
  for (size_t i = 0; i < count && !queue.empty(); ++i) order += queue.pop();
  return order;
}

TEST(FairQueue, AUsersItemsKeepTheirOrder) {
  FairQueue<UserId, std::string> queue(10);
  for (const char* item : {"1", "2", "3", "4"}) queue.push(kAlice, 3, item);
  EXPECT_EQ(queue.size(), 4U);
  EXPECT_EQ(drain(queue, 9), "1234");
  EXPECT_TRUE(queue.empty());
}

TEST(FairQueue, ANewcomerWaitsForOneTurnNotForTheQueue) {
  FairQueue<UserId, std::string> queue(10);
  for (int i = 0; i < 5000; ++i) queue.push(kAlice, 10, "a");
  EXPECT_EQ(drain(queue, 3), "aaa");
  queue.push(kBob, 10, "b");
  EXPECT_NE(drain(queue, 2).find('b'), std::string::npos);
}

TEST(FairQueue, UsersShareByCostNotByCount) {
  FairQueue<UserId, std::string> queue(10);
  for (int i = 0; i < 100; ++i) queue.push(kAlice, 30, "a");
  for (int i = 0; i < 1000; ++i) queue.push(kBob, 3, "b");
  std::map<char, int> count;
  for (const char c : drain(queue, 220)) ++count[c];
  EXPECT_NEAR(count['b'], 10 * count['a'], 20);
}

TEST(FairQueue, AnExpensiveItemIsReachedAfterSeveralRounds) {
  FairQueue<UserId, std::string> queue(10);
  queue.push(kAlice, 1'000'000'000'000, "A");
  for (int i = 0; i < 3; ++i) queue.push(kBob, 10, "b");
  EXPECT_EQ(drain(queue, 9), "bbbA");
  queue.push(kAlice, 1'000'000'000'000, "A");
  EXPECT_EQ(drain(queue, 9), "A");
}

TEST(FairQueue, AUserWithoutItemsSavesNoTurns) {
  FairQueue<UserId, std::string> queue(10);
  queue.push(kAlice, 1, "a");
  EXPECT_EQ(drain(queue, 1), "a");
  for (int i = 0; i < 20; ++i) {
    queue.push(kAlice, 5, "a");
    queue.push(kBob, 5, "b");
    queue.push(kCarol, 5, "c");
  }
  EXPECT_EQ(drain(queue, 12), "aabbccaabbcc");
}

class Dispatch : public ::testing::Test {
 protected:
  void submit(DispatchQueue& queue, const UserId& user, const std::string& name, int64_t slots = 1) {
    queue.submit({.user = user, .cost = 1000, .slots = slots, .start = [this, name] {
                    started += name;
                    return true;
                  }});
  }
  std::string started;
};

TEST_F(Dispatch, OnlyAsManyJobsAsSlotsAreAtTheWorker) {
  DispatchQueue queue(4);
  for (int i = 0; i < 10; ++i) submit(queue, kAlice, "a");
  EXPECT_EQ(started, "aaaa");
  EXPECT_EQ(queue.load().waiting, 6U);
  EXPECT_EQ(queue.load().in_flight, 4);
  queue.release(kAlice, 1);
  EXPECT_EQ(started, "aaaaa");
}

TEST_F(Dispatch, JobsOutOfTurnAreLimited) {
  DispatchQueue queue(2, 3);
  for (const UserId& user : {kAlice, kBob, kCarol, UserId("dave"), UserId("erin")})
    submit(queue, user, user.str() + " ");
  EXPECT_EQ(started, "alice bob carol ");
  queue.release(kAlice, 1);
  EXPECT_EQ(started, "alice bob carol dave ");
  queue.close();
  EXPECT_EQ(started, "alice bob carol dave erin ");
}

TEST_F(Dispatch, AUserHasAnEqualPartOfTheSlotsWhateverOthersHold) {
  DispatchQueue queue(4);
  for (int i = 0; i < 10; ++i) submit(queue, kAlice, "a");
  for (int i = 0; i < 5; ++i) submit(queue, kBob, "b");
  EXPECT_EQ(started, "aaaabb");
  submit(queue, kCarol, "c");
  EXPECT_EQ(started, "aaaabbc");
  EXPECT_EQ(queue.load().in_flight, 7);
  queue.release(kBob, 1);
  EXPECT_EQ(started, "aaaabbc") << "a third of four slots is one";
  queue.release(kBob, 1);
  EXPECT_EQ(started, "aaaabbcb");
}

TEST_F(Dispatch, AUsersFirstJobIsSentAtOnceHoweverLargeTheOthersAre) {
  DispatchQueue queue(4);
  submit(queue, kAlice, "A", 4);
  submit(queue, kAlice, "A", 4);
  submit(queue, kBob, "b");
  EXPECT_EQ(started, "Ab");
  submit(queue, kCarol, "C", 100);
  EXPECT_EQ(started, "AbC");
  queue.release(kCarol, 100);
  queue.release(kAlice, 4);
  EXPECT_EQ(started, "AbCA");
  queue.release(kBob, 1);
  queue.release(kAlice, 4);
  EXPECT_EQ(queue.load().in_flight, 0);
  EXPECT_EQ(queue.load().waiting, 0U);
}

// What has nothing to send, answers at once or submits more while it starts must neither keep a slot nor a successor.
TEST_F(Dispatch, EveryJobStartsOnceAndAllSlotsComeBack) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 200; ++round) {
    DispatchQueue queue(1 + below(6));
    const UserId users[] = {kAlice, kBob, kCarol, UserId("dave")};
    std::vector<std::pair<UserId, int64_t>> at_worker;
    int submitted = 0;
    int begun = 0;
    std::function<void()> give = [&] {
      const UserId& user = users[below(4)];
      const int64_t slots = 1 + below(4);
      ++submitted;
      queue.submit({.user = user, .cost = 1 + below(300), .slots = slots, .start = [&, user, slots] {
                      ++begun;
                      if (below(8) == 0 && submitted < 400) give();
                      if (below(4) == 0) return false;
                      if (below(6) == 0) {
                        queue.release(user, slots);
                      } else {
                        at_worker.emplace_back(user, slots);
                      }
                      return true;
                    }});
    };
    const auto answer = [&](size_t which) {
      const auto [user, slots] = at_worker[which];
      at_worker.erase(at_worker.begin() + static_cast<ptrdiff_t>(which));
      queue.release(user, slots);
    };
    while (submitted < 200) {
      give();
      if (!at_worker.empty() && below(3) == 0) answer(random() % at_worker.size());
    }
    while (!at_worker.empty()) answer(random() % at_worker.size());
    EXPECT_EQ(begun, submitted);
    EXPECT_EQ(queue.load().in_flight, 0);
    EXPECT_EQ(queue.load().waiting, 0U);
  }
}

TEST_F(Dispatch, AJobLargerThanAllSlotsIsStartedAlone) {
  DispatchQueue queue(4);
  submit(queue, kAlice, "a");
  submit(queue, kAlice, "B", 100);
  EXPECT_EQ(started, "a");
  queue.release(kAlice, 1);
  EXPECT_EQ(started, "aB");
  submit(queue, kAlice, "c");
  EXPECT_EQ(started, "aB");
  queue.release(kAlice, 100);
  EXPECT_EQ(started, "aBc");
  EXPECT_EQ(queue.load().in_flight, 1);
}

TEST_F(Dispatch, AJobWithNothingToSendFreesItsSlots) {
  DispatchQueue queue(1);
  submit(queue, kAlice, "a");
  queue.submit({.user = kAlice, .start = [] { return false; }});
  submit(queue, kAlice, "b");
  queue.release(kAlice, 1);
  EXPECT_EQ(started, "ab");
  EXPECT_EQ(queue.load().in_flight, 1);
}

// With recursion, a hundred thousand answers would need as many stack frames.
TEST_F(Dispatch, ImmediateAnswersDoNotNest) {
  DispatchQueue queue(1);
  int depth = 0;
  int deepest = 0;
  int left = 100'000;
  std::function<void()> next = [&] {
    queue.submit({.user = kAlice, .start = [&] {
                    deepest = std::max(deepest, ++depth);
                    if (--left > 0) next();
                    queue.release(kAlice, 1);
                    --depth;
                    return true;
                  }});
  };
  next();
  EXPECT_EQ(left, 0);
  EXPECT_EQ(deepest, 1);
  EXPECT_EQ(queue.load().in_flight, 0);
}

using Letters = TenantQueue<std::string>;

Letters::Push give(Letters& queue, const UserId& user, int64_t cost, std::string item) {
  return queue.try_push(user, cost, std::move(item));
}

TEST(TenantQueue, TheWaitingItemsOfEachUserAreLimited) {
  Letters queue({.quantum = 1, .user_max = 3, .all_max = 100});
  EXPECT_EQ(give(queue, kAlice, 2, "a"), Letters::Push::kTaken);
  std::string refused = "untouched";
  EXPECT_EQ(queue.try_push(kAlice, 2, std::move(refused)), Letters::Push::kUserFull);
  EXPECT_EQ(refused, "untouched");  // NOLINT(bugprone-use-after-move): it is not moved then
  EXPECT_EQ(give(queue, kAlice, 1, "b"), Letters::Push::kTaken);
  EXPECT_EQ(give(queue, kBob, 2, "c"), Letters::Push::kTaken);
  EXPECT_EQ(queue.pop(), "a");
  EXPECT_EQ(give(queue, kAlice, 2, "d"), Letters::Push::kTaken);
}

TEST(TenantQueue, AUserWithoutWaitingItemsIsNeverRefused) {
  Letters queue({.quantum = 1, .user_max = 10, .all_max = 3});
  EXPECT_EQ(give(queue, kAlice, 3, "a"), Letters::Push::kTaken);
  EXPECT_EQ(give(queue, kAlice, 1, "a"), Letters::Push::kFull);
  EXPECT_EQ(give(queue, kBob, 20, "b"), Letters::Push::kTaken);
  EXPECT_EQ(give(queue, kBob, 1, "b"), Letters::Push::kUserFull);
}

TEST(TenantQueue, ContinuedWorkIsNotRefusedAndWaitsForItsTurn) {
  Letters queue({.quantum = 1, .user_max = 2, .all_max = 2});
  for (const char* item : {"1", "2"}) EXPECT_EQ(give(queue, kAlice, 1, item), Letters::Push::kTaken);
  EXPECT_TRUE(queue.push(kAlice, 1, "3"));
  EXPECT_EQ(give(queue, kBob, 1, "b"), Letters::Push::kTaken);
  std::string order;
  for (int i = 0; i < 4; ++i) order += *queue.pop();
  EXPECT_EQ(order, "1b23");
}

TEST(TenantQueue, AClosedQueueReturnsItsItemsAndRefusesNewOnes) {
  Letters queue({.quantum = 1, .user_max = 5, .all_max = 5});
  EXPECT_EQ(give(queue, kAlice, 1, "a"), Letters::Push::kTaken);
  queue.close();
  EXPECT_EQ(give(queue, kBob, 1, "b"), Letters::Push::kClosed);
  EXPECT_FALSE(queue.push(kBob, 1, "b"));
  EXPECT_EQ(queue.pop(), "a");
  EXPECT_EQ(queue.pop(), std::nullopt);
}

TEST_F(Dispatch, ClosingStartsWaitingJobs) {
  DispatchQueue queue(1);
  for (int i = 0; i < 3; ++i) submit(queue, kAlice, "a");
  EXPECT_EQ(started, "a");
  queue.close();
  EXPECT_EQ(started, "aaa");
}

}  // namespace
}  // namespace tuft::control
