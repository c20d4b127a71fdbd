#include "engine/sample/draws.h"

#include <cmath>
#include <thread>

#include <gtest/gtest.h>

#include "base/testing/failing_allocations.h"

namespace tuft::engine {
namespace {

// Runs tasks on threads of its own, each with every n-th task.
class ThreadedDecoding final : public DecodeEngine {
 public:
  explicit ThreadedDecoding(int threads) : threads_(threads) {}
  Result<SequenceId> open(const std::optional<AdapterId>&, uint64_t) override { return internal_error("not used"); }
  Result<SequenceId> fork(SequenceId) override { return internal_error("not used"); }
  void close(SequenceId) override {}
  int adopt_prefix(SequenceId, std::span<const int32_t>) override { return 0; }
  Status step(std::span<const Feed>, const LogitsSink&) override { return {}; }
  KvUsage kv_usage() const override { return {}; }
  int threads() const override { return threads_; }
  void run_tasks(int tasks, const Task& task) override {
    tasks_run += tasks;
    std::vector<std::thread> all;
    for (int thread = 0; thread < threads_; ++thread) {
      all.emplace_back([&, thread] {
        if (lacks_memory && thread == 1) FailingAllocations::start(0);
        for (int number = thread; number < tasks; number += threads_) task(number, thread);
        FailingAllocations::stop();
      });
    }
    for (std::thread& one : all) one.join();
  }

  int tasks_run = 0;
  bool lacks_memory = false;

 private:
  const int threads_;
};

constexpr size_t kVocabulary = 3000;

class DrawsTest : public ::testing::Test {
 protected:
  DrawsTest() {
    const int top_ks[] = {-1, 5, 2000};
    const float top_ps[] = {1.0F, 0.9F};
    for (size_t row = 0; row < 40; ++row) {
      std::vector<float>& logits = rows_.emplace_back(kVocabulary);
      for (size_t i = 0; i < kVocabulary; ++i)
        logits[i] = std::sin(static_cast<float>(row * 7919 + i * i % 977)) * 6.0F;
      SamplingParams& params = params_.emplace_back();
      params.temperature = row % 7 == 0 ? 0.0F : 0.9F;
      params.top_k = top_ks[row % 3];
      params.top_p = top_ps[row % 2];
    }
    rows_[11][5] = NAN;
  }
  std::vector<LogitsTask> tasks() const {
    std::vector<LogitsTask> tasks;
    for (size_t row = 0; row < rows_.size(); ++row) {
      LogitsTask& task = tasks.emplace_back();
      task.logits = rows_[row];
      if (row % 5 != 0) task.params = &params_[row];
      task.drawn.token = 17;
      task.uniform = static_cast<double>(row) / 40.0;
      task.top = row % 4 == 0 ? 20 : 0;
    }
    return tasks;
  }

  std::vector<std::vector<float>> rows_;
  std::vector<SamplingParams> params_;
};

TEST_F(DrawsTest, OnAnyNumberOfThreadsThenTheSameBits) {
  ThreadedDecoding alone(1);
  std::vector<LogitsTask> expected = tasks();
  Draws one(alone);
  for (LogitsTask& task : expected) one.run({&task, 1});
  for (const int threads : {1, 2, 5}) {
    ThreadedDecoding engine(threads);
    Draws draws(engine);
    std::vector<LogitsTask> all = tasks();
    draws.run(all);
    EXPECT_EQ(engine.tasks_run, threads == 1 ? 0 : 40);
    for (size_t row = 0; row < all.size(); ++row) {
      EXPECT_EQ(all[row].finite, row != 11);
      EXPECT_EQ(all[row].drawn.token, expected[row].drawn.token);
      EXPECT_EQ(all[row].drawn.logprob, expected[row].drawn.logprob);
      ASSERT_EQ(all[row].drawn.top.size(), expected[row].drawn.top.size());
      for (size_t i = 0; i < all[row].drawn.top.size(); ++i) {
        EXPECT_EQ(all[row].drawn.top[i].token, expected[row].drawn.top[i].token);
        EXPECT_EQ(all[row].drawn.top[i].logprob, expected[row].drawn.top[i].logprob);
      }
    }
  }
}

TEST_F(DrawsTest, AThreadWithoutMemoryThenTheCallerLearnsOfIt) {
  ThreadedDecoding engine(3);
  Draws draws(engine);
  std::vector<LogitsTask> all = tasks();
  engine.lacks_memory = true;
  EXPECT_THROW(draws.run(all), std::bad_alloc);
  engine.lacks_memory = false;
  all = tasks();
  draws.run(all);
  EXPECT_TRUE(all[1].finite);
}

}  // namespace
}  // namespace tuft::engine
