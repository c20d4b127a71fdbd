// Whose training curves leave when there are too many.
#include <string>
#include <vector>

#include "telemetry_store/tests/store_fixture.h"

namespace tuft::telemetry_store {
namespace {

class RunCurves : public StoreOnDiskTest {
 protected:
  RunCurves() { options_.memory_bytes_max = int64_t{8} << 20; }

  void add_step(const std::string& run, const std::string& owner, int64_t step) {
    clock_.advance(kMillisecond);
    store_->add_step({.run = run, .owner = owner, .step = step, .time = now(), .loss = 1});
    // The queue is bounded.
    if (++added_ % 1'000 == 0) settle();
  }
  void add_steps(const std::string& run, const std::string& owner, int64_t count) {
    for (int64_t step = 1; step <= count; ++step) add_step(run, owner, step);
  }
  void settle() { ASSERT_TRUE(store_->settle(60 * kSecond)); }
  // How many steps of the run its owner sees.
  size_t seen(const std::string& run, const std::string& owner) {
    settle();
    return store_->steps({.user = owner}, run, 0, 100'000).size();
  }

 private:
  int added_ = 0;
};

TEST_F(RunCurves, ManyRunsOfAUserPushOutOnlyTheirOwn) {
  options_.memory_bytes_max = int64_t{64} << 20;  // so that only the number of runs is over a limit
  reopen();
  add_steps("curve", "bob", 60);
  for (int run = 0; run < 10'100; ++run) add_step("r" + std::to_string(run), "alice", 1);
  EXPECT_EQ(seen("curve", "bob"), 60u);
  EXPECT_EQ(seen("r0", "alice"), 0u) << "the user with the most runs loses the one that rested longest";
  EXPECT_EQ(seen("r10099", "alice"), 1u);
  reopen();
  EXPECT_EQ(seen("curve", "bob"), 60u) << "the file keeps what the memory does";
  add_step("new", "bob", 1);
  EXPECT_EQ(seen("new", "bob"), 1u);
  EXPECT_EQ(seen("curve", "bob"), 60u);
}

TEST_F(RunCurves, ManyStepsOfAUserThinOnlyTheirOwn) {
  add_steps("curve", "bob", 150);
  for (int run = 0; run < 400; ++run) add_steps("r" + std::to_string(run), "alice", 40);
  EXPECT_EQ(seen("curve", "bob"), 150u);
  EXPECT_LT(store_->state().steps, 10'000u) << "they have met the limit";
  const auto newest = store_->steps(kAlice, "r399", 0, 100);
  ASSERT_FALSE(newest.empty());
  EXPECT_EQ(newest.front().step, 1);
  EXPECT_EQ(newest.back().step, 40);
}

TEST_F(RunCurves, ManyUsersWithFewStepsKeepThemBesideOneWithMany) {
  for (int user = 0; user < 50; ++user) add_steps("r" + std::to_string(user), "user" + std::to_string(user), 20);
  add_steps("long", "alice", 20'000);
  for (int user = 0; user < 50; ++user) {
    ASSERT_EQ(seen("r" + std::to_string(user), "user" + std::to_string(user)), 20u) << user;
  }
  EXPECT_GT(seen("long", "alice"), 1'000u);
}

TEST_F(RunCurves, StepsWithoutANumberAreNotKept) {
  add_steps("curve", "bob", 3);
  for (int i = 0; i < 1'000; ++i) add_step("empty", "alice", 0);
  settle();
  EXPECT_EQ(store_->state().steps, 3u);
}

TEST_F(RunCurves, ARunThatGoesBackLosesTheStepsThatItLeft) {
  add_steps("curve", "bob", 10);
  add_step("curve", "bob", 20);
  add_step("curve", "bob", 6);
  EXPECT_EQ(seen("curve", "bob"), 6u);
  EXPECT_EQ(store_->steps(kBob, "curve", 0, 100).back().time, now()) << "the newest step is the last one";
  EXPECT_EQ(store_->state().steps, 6u);
  add_step("curve", "bob", 7);
  EXPECT_EQ(seen("curve", "bob"), 7u);
  reopen();
  EXPECT_EQ(seen("curve", "bob"), 7u) << "the file has the steps in the order in which they came";
}

TEST_F(RunCurves, ALongRunThatGoesBackGoesOnFromThere) {
  add_steps("long", "alice", 20'000);
  for (const int64_t step : {9'999, 10'000, 10'001}) {
    add_step("long", "alice", step);
    settle();
    const std::vector<RunStep> steps = store_->steps(kAlice, "long", 0, 100'000);
    EXPECT_EQ(steps.back().step, step);
    EXPECT_EQ(steps.back().time, now());
    EXPECT_EQ(store_->state().steps, steps.size());
  }
  // A step of before stays: the curve is thinned, and not only its newest part is left.
  EXPECT_GT(seen("long", "alice"), 1'000u);
}

TEST_F(RunCurves, ARunCountsForItsLastOwner) {
  add_steps("run", "alice", 5);
  add_step("run", "bob", 6);
  EXPECT_EQ(seen("run", "alice"), 0u);
  EXPECT_EQ(seen("run", "bob"), 6u);
  add_steps("long", "alice", 20'000);
  EXPECT_EQ(seen("run", "bob"), 6u);
  EXPECT_GT(seen("long", "alice"), 1'000u);
}

}  // namespace
}  // namespace tuft::telemetry_store
