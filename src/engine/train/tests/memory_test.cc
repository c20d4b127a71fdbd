// What a lack of memory does to the scheduler: every allocation of every call fails once, alone or with all that
// follow.
#include <new>

#include <gtest/gtest.h>

#include "base/testing/failing_allocations.h"
#include "engine/tests/fake_training_engine.h"
#include "engine/train/scheduler.h"

namespace tuft::engine {
namespace {

using Which = FailingAllocations::Which;

struct Job {
  std::string adapter;
  std::vector<int> lengths;
};
const std::vector<Job>& jobs() {
  static const std::vector<Job> all = {{"an adapter with a long name", {3, 1}},
                                       {"an adapter with a long name", {2, 2}},
                                       {"another adapter with a long name", {2, 9, 4}},
                                       {"one more adapter with a long name", {4}}};
  return all;
}

class TrainScene {
 public:
  TrainScene() {
    for (const Job& job : jobs()) {
      if (!engine_.contains(AdapterId(job.adapter))) (void)engine_.create(AdapterId(job.adapter), {});
    }
    scheduler_ = make_train_scheduler(engine_.model(), engine_.adapters(), engine_.training(), {.batch_tokens = 8});
  }
  static TrainRequest request(const Job& job) {
    TrainRequest request{AdapterId(job.adapter), {}, "cross_entropy", {}, true, 0, "the tenant of " + job.adapter};
    for (const int length : job.lengths) {
      Datum datum;
      datum.tokens.assign(static_cast<size_t>(length), 1);
      datum.loss_inputs["target_tokens"] = {{length}, std::vector<int64_t>(static_cast<size_t>(length), 2)};
      request.data.push_back(std::move(datum));
    }
    return request;
  }
  TrainScheduler::Done into(size_t job) {
    return [this, job](Result<TrainOutput> result) {
      EXPECT_FALSE(answers_[job].has_value()) << "answered twice";
      answers_[job].emplace(std::move(result));
    };
  }
  void submit(size_t job) { ASSERT_TRUE(scheduler_->submit(request(jobs()[job]), into(job)).ok()); }
  void run() {
    for (int i = 0; i < 1000 && !scheduler_->idle(); ++i) scheduler_->step();
  }
  TrainScheduler& scheduler() { return *scheduler_; }
  bool keeps_pass() const { return engine_.keeps_pass; }
  // Expects one answer for each job, and the gradient of exactly those that succeeded. Returns how many failed.
  int check() {
    EXPECT_TRUE(scheduler_->idle());
    std::map<std::string, double> wanted;
    int failed = 0;
    for (size_t job = 0; job < jobs().size(); ++job) {
      if (!answers_[job].has_value()) {
        ADD_FAILURE() << "job " << job << " was not answered";
      } else if (!answers_[job]->ok()) {
        ++failed;
        const std::string reason = answers_[job]->error().reason;
        EXPECT_TRUE(reason == "out_of_memory" || reason == "memory") << reason;
      } else {
        for (const int length : jobs()[job].lengths) wanted[jobs()[job].adapter] -= length;
      }
    }
    for (const auto& [adapter, sum] : engine_.gradient_sums) EXPECT_EQ(sum, wanted[adapter]);
    return failed;
  }

 private:
  FakeTrainingEngine engine_;
  std::array<std::optional<Result<TrainOutput>>, 4> answers_;
  std::unique_ptr<TrainScheduler> scheduler_;
};

TEST(TrainSchedulerMemory, ARequestThatCannotBeAcceptedLeavesNothingBehind) {
  for (const size_t job : {1, 3}) {  // of an adapter with a queue, and of one without
    int64_t allocation = 0;
    for (bool failed = true; failed; ++allocation) {
      TrainScene scene;
      for (size_t other = 0; other < job; ++other) scene.submit(other);
      TrainRequest request = TrainScene::request(jobs()[job]);
      auto done = scene.into(job);
      FailingAllocations::start(allocation);
      try {
        (void)scene.scheduler().submit(std::move(request), std::move(done));
        failed = FailingAllocations::stop();
      } catch (const std::bad_alloc&) {
        failed = FailingAllocations::stop();
        scene.submit(job);  // as a client would
      }
      for (size_t other = job + 1; other < jobs().size(); ++other) scene.submit(other);
      scene.run();
      EXPECT_EQ(scene.check(), 0);
    }
    EXPECT_GT(allocation, 5);
  }
}

TEST(TrainSchedulerMemory, AStepThatCannotBePlannedFailsOneRequestAtMost) {
  int failures = 0;
  for (const Which which : {Which::kOne, Which::kAllAfter}) {
    bool ran = true;
    for (int before = 0; ran; ++before) {
      bool failed = true;
      for (int64_t allocation = 0; failed; ++allocation) {
        TrainScene scene;
        for (size_t job = 0; job < jobs().size(); ++job) scene.submit(job);
        for (int i = 0; i < before; ++i) scene.scheduler().step();
        ran = !scene.scheduler().idle();
        FailingAllocations::start(allocation, which);
        scene.scheduler().step();
        failed = FailingAllocations::stop();
        EXPECT_FALSE(scene.keeps_pass()) << "a pass without its backward() holds its memory";
        scene.run();
        const int lost = scene.check();
        EXPECT_LE(lost, 1);
        failures += lost;
        if (::testing::Test::HasFailure()) FAIL() << "step " << before << ", allocation " << allocation;
      }
    }
  }
  EXPECT_GT(failures, 10);
}

}  // namespace
}  // namespace tuft::engine
