// Tests of who leaves the engine where adapters of several tenants do not fit, and who comes back.
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "base/testing/temp_dir.h"
#include "engine/tests/fake_engine.h"
#include "worker/adapter_pager.h"

namespace tuft::worker {
namespace {

using engine::AdapterId;

// In the fake engine an adapter in training takes 60 bytes, and a sampler 20.
class AdapterRoomTest : public ::testing::Test {
 protected:
  void limit_to(int64_t bytes) {
    AdapterPager::Surroundings surroundings = {[this](const AdapterId& id) { return at_work_.contains(id.str()); },
                                               [this](std::unique_ptr<PageJob>& job) {
                                                 jobs_.push_back(std::move(job));
                                                 return true;
                                               }};
    pager_ = std::make_unique<AdapterPager>(engine_.model(), engine_, clock_, "tiny",
                                            PagerOptions{bytes, directory_.path()}, std::move(surroundings));
  }
  void create(const std::string& id, const std::string& tenant, AdapterKind kind = AdapterKind::kTraining) {
    engine::AdapterState state;
    state.spec.rank = 4;
    ASSERT_TRUE(pager_->create(AdapterId(id), engine::detached(state), kind, tenant).ok()) << id;
    run_jobs();
  }
  // The tenant "many" works with "a" and "b", and "one" has "used", which does not work now. "waits" of "many" and
  // "asks" of "two" are in their pages. There is room for three.
  void let_many_work_beside_one() {
    limit_to(180);
    create("waits", "many");
    create("asks", "two");
    clock_.advance(11 * kSecond);
    for (const char* id : {"a", "b"}) create(id, "many");
    create("used", "one");
    ASSERT_TRUE(is_in("a") && is_in("b") && is_in("used") && !is_in("waits") && !is_in("asks"));
    at_work_ = {"a", "b"};
  }
  // Asks for the adapter, like the first operation of its queue.
  void ask(const std::string& id) {
    pager_->used(AdapterId(id));
    if (!is_in(id)) pager_->bring_back(AdapterId(id), {});
    run_jobs();
  }
  void stops_working(const std::string& id) {
    at_work_.erase(id);
    pager_->go_on();
    run_jobs();
  }
  void run_jobs() {
    while (!jobs_.empty()) {
      auto job = std::move(jobs_.front());
      jobs_.pop_front();
      job->run();
      if (job->work != PageJob::Work::kDrop) (void)pager_->finish(std::move(job));
    }
  }
  bool is_in(const std::string& id) const { return pager_->in_engine(AdapterId(id)); }

  engine::testing::FakeEngine engine_{16};
  FakeClock clock_;
  TempDir directory_;
  std::set<std::string> at_work_;
  std::deque<std::unique_ptr<PageJob>> jobs_;
  std::unique_ptr<AdapterPager> pager_;
};

TEST_F(AdapterRoomTest, OneTenantThenTheLeastRecentlyUsedLeaves) {
  limit_to(180);
  for (const char* id : {"a", "b", "c"}) create(id, "t");
  ask("a");
  create("d", "t");
  EXPECT_FALSE(is_in("b"));
  for (const char* id : {"a", "c", "d"}) EXPECT_TRUE(is_in(id)) << id;
}

TEST_F(AdapterRoomTest, AnAdapterOfTheTenantWithMostBytesLeaves) {
  limit_to(240);
  create("single", "one");
  for (const char* id : {"a", "b", "c"}) create(id, "many");
  create("other", "two");
  EXPECT_FALSE(is_in("a")) << "the oldest of the tenant with the most, although another one is older";
  EXPECT_TRUE(is_in("single"));
}

TEST_F(AdapterRoomTest, TenantWithMoreBytesWaitsForItsOwnAndLetsOthersGoFirst) {
  let_many_work_beside_one();
  ask("waits");
  EXPECT_FALSE(is_in("waits")) << "its tenant has more than the one whose adapter could leave";
  ask("asks");
  EXPECT_TRUE(is_in("asks")) << "a tenant with nothing in the engine takes the place of one that has something";
  EXPECT_FALSE(is_in("used"));
  at_work_.insert("asks");
  stops_working("a");
  EXPECT_TRUE(is_in("waits"));
  EXPECT_FALSE(is_in("a"));
}

TEST_F(AdapterRoomTest, TenantWithMoreBytesWaitsNoLongerThanTenSeconds) {
  let_many_work_beside_one();  // and what works never stops
  ask("waits");
  clock_.advance(9 * kSecond);
  ask("used");
  pager_->go_on();
  EXPECT_FALSE(is_in("waits"));
  clock_.advance(2 * kSecond);
  pager_->go_on();
  run_jobs();
  EXPECT_TRUE(is_in("waits"));
  EXPECT_FALSE(is_in("used"));
}

TEST_F(AdapterRoomTest, OthersMakeNoRoomThatIsTooSmall) {
  limit_to(140);
  create("waits", "one");
  clock_.advance(11 * kSecond);
  create("works", "one");
  for (const char* id : {"v1", "v2", "v3", "v4"}) create(id, "two", AdapterKind::kSampler);
  ASSERT_TRUE(is_in("v1") && is_in("v4") && !is_in("waits"));
  at_work_ = {"works"};
  ask("waits");
  for (const char* id : {"v1", "v2", "v3", "v4"})
    EXPECT_TRUE(is_in(id)) << id << " leaves 20 bytes, and 60 are lacking";
  EXPECT_FALSE(is_in("waits"));
}

TEST_F(AdapterRoomTest, AnUnusedAdapterLeavesWhoseverItIs) {
  limit_to(180);
  create("waits", "many");
  for (const char* id : {"a", "b"}) create(id, "many");
  create("single", "one");
  clock_.advance(11 * kSecond);
  ask("a"), ask("b");
  at_work_ = {"a"};
  ask("waits");
  EXPECT_TRUE(is_in("waits"));
  EXPECT_FALSE(is_in("single"));
  EXPECT_TRUE(is_in("b")) << "it is used, and an own one leaves only after those that are not";
}

TEST_F(AdapterRoomTest, NothingCanLeaveThenASmallerOneDoesNotGoFirst) {
  limit_to(80);
  create("small", "two", AdapterKind::kSampler);
  create("large", "one");
  create("v1", "three", AdapterKind::kSampler);
  create("v2", "three", AdapterKind::kSampler);
  for (const char* id : {"small", "v1", "v2"}) ask(id);
  ASSERT_TRUE(is_in("v1") && is_in("v2") && is_in("small") && !is_in("large"));
  at_work_ = {"v1", "v2", "small"};
  ask("large");
  create("late", "four", AdapterKind::kSampler);
  ASSERT_TRUE(is_in("late")) << "there is room for a new one";
  stops_working("late");
  EXPECT_FALSE(is_in("large")) << "two others keep it out";
  ask("late");
  EXPECT_FALSE(is_in("late")) << "what waits for more room comes first";
  stops_working("v1");
  stops_working("v2");
  EXPECT_TRUE(is_in("large"));
}

}  // namespace
}  // namespace tuft::worker
