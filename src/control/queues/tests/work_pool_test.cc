#include "control/queues/work_pool.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/mutex.h"
#include "control/tests/users.h"

namespace tuft::control {
namespace {

// Tasks that run until they are released, and the order in which they began.
class Tasks {
 public:
  WorkPool::Task task(const std::string& name) {
    return [this, name] {
      MutexLock lock(mutex_);
      begun_.push_back(name);
      changed_.notify_all();
      while (!released_) changed_.wait(mutex_);
    };
  }
  std::vector<std::string> await_begun(size_t count) {
    MutexLock lock(mutex_);
    while (begun_.size() < count) changed_.wait(mutex_);
    return begun_;
  }
  void release() {
    MutexLock lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> begun_ TUFT_GUARDED_BY(mutex_);
  bool released_ TUFT_GUARDED_BY(mutex_) = false;
};

TEST(WorkPool, AUserNeverHasAllThreads) {
  Tasks tasks;
  WorkPool pool(3, {.quantum = 10, .user_max = 100, .all_max = 100});
  for (const char* name : {"a1", "a2", "a3"}) ASSERT_TRUE(pool.post(kAlice, 1, tasks.task(name)).ok());
  tasks.await_begun(2);
  // The third thread is left for somebody else.
  ASSERT_TRUE(pool.post(kBob, 1, tasks.task("b")).ok());
  EXPECT_EQ(tasks.await_begun(3)[2], "b");
  tasks.release();
  tasks.await_begun(4);
}

TEST(WorkPool, AUserHasOneThreadWhileOthersWait) {
  Tasks first, rest;
  WorkPool pool(3, {.quantum = 1, .user_max = 100, .all_max = 100});
  ASSERT_TRUE(pool.post(kAlice, 1, rest.task("a1")).ok());
  ASSERT_TRUE(pool.post(kBob, 1, first.task("b1")).ok());
  ASSERT_TRUE(pool.post(UserId("carol"), 1, first.task("c1")).ok());
  rest.await_begun(1);
  first.await_begun(2);
  ASSERT_TRUE(pool.post(kAlice, 1, rest.task("a2")).ok());
  ASSERT_TRUE(pool.post(UserId("dan"), 1, rest.task("d")).ok());
  ASSERT_TRUE(pool.post(UserId("erin"), 1, rest.task("e")).ok());
  first.release();
  const std::vector<std::string> begun = rest.await_begun(3);
  EXPECT_EQ(std::count(begun.begin(), begun.end(), "a2"), 0);
  rest.release();
  rest.await_begun(4);
}

TEST(WorkPool, WaitingWorkIsBoundedExceptForAUsersOnlyTask) {
  Tasks tasks;
  WorkPool pool(1, {.quantum = 10, .user_max = 20, .all_max = 30});
  ASSERT_TRUE(pool.post(kBob, 1, tasks.task("running")).ok());
  tasks.await_begun(1);
  EXPECT_TRUE(pool.post(kAlice, 1'000, tasks.task("only")).ok());
  const Status over = pool.post(kAlice, 1, tasks.task("over"), "a_reason");
  ASSERT_FALSE(over.ok());
  EXPECT_EQ(over.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(over.error().reason, "a_reason");
  EXPECT_TRUE(pool.post(kBob, 10, tasks.task("b")).ok());
  EXPECT_FALSE(pool.post(kBob, 1, tasks.task("over")).ok());
  EXPECT_TRUE(pool.post_rest(kBob, 1, tasks.task("rest")));
  tasks.release();
  tasks.await_begun(4);
}

TEST(WorkPool, AStoppedPoolHasCalledWhatItAccepted) {
  Tasks tasks;
  std::atomic<int> called = 0;
  WorkPool pool(2, {.quantum = 10, .user_max = 100, .all_max = 100});
  ASSERT_TRUE(pool.post(kBob, 1, tasks.task("running")).ok());
  tasks.await_begun(1);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(pool.post(kAlice, 1, [&] { called += pool.closed() ? 100 : 1; }).ok());
  pool.close();
  EXPECT_EQ(pool.post(kAlice, 1, [] {}).error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(pool.post_rest(kAlice, 1, [] {}));
  tasks.release();
  pool.stop();
  EXPECT_GE(called, 5);
}

}  // namespace
}  // namespace tuft::control
