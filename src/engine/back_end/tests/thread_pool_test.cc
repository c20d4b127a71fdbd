#include "engine/back_end/thread_pool.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace tuft::engine {
namespace {

TEST(ThreadPool, ManyJobsThenEveryTaskRunsOnce) {
  ThreadPool pool(4);
  for (int round = 0; round < 2'000; ++round) {
    const int tasks = round % 67;
    std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
    const auto count = [&](int task, int) { ++runs[static_cast<size_t>(task)]; };
    pool.run(tasks, count);
    for (const auto& run : runs) ASSERT_EQ(run, 1);
  }
}

TEST(ThreadPool, ThreadNumberIsNeverSharedAtATime) {
  ThreadPool pool(3);
  std::array<std::atomic<int>, 3> busy{};
  std::atomic<int> shared{0};
  const auto task = [&](int, int thread) {
    if (busy[static_cast<size_t>(thread)].fetch_add(1) != 0) ++shared;
    busy[static_cast<size_t>(thread)].fetch_sub(1);
  };
  for (int round = 0; round < 500; ++round) pool.run(32, task);
  EXPECT_EQ(shared, 0);
}

TEST(ThreadPool, MoreTasksThanATicketCountsThenEveryTaskRunsOnce) {
  ThreadPool pool(2);
  constexpr int kTasks = (1 << 20) + 5;
  std::vector<uint8_t> runs(kTasks);
  const auto count = [&](int task, int) { ++runs[static_cast<size_t>(task)]; };
  pool.run(kTasks, count);
  EXPECT_EQ(std::count(runs.begin(), runs.end(), 1), kTasks);
}

TEST(ThreadPool, OneThreadThenTheCallerRunsThemInOrder) {
  ThreadPool pool(1);
  std::vector<int> order;
  const auto task = [&](int index, int) { order.push_back(index); };
  pool.run(5, task);
  std::vector<int> expected(5);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

}  // namespace
}  // namespace tuft::engine
