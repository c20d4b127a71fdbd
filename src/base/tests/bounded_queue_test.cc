#include "base/bounded_queue.h"

#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace tuft {
namespace {

TEST(BoundedQueue, RefusesWhenFullAndLeavesTheValueWithTheCaller) {
  BoundedQueue<std::string> queue(1);
  EXPECT_TRUE(queue.try_push("first"));
  std::string second = "second";
  EXPECT_FALSE(queue.try_push(std::move(second)));
  EXPECT_EQ(second, "second");  // NOLINT(bugprone-use-after-move): the contract under test
  EXPECT_EQ(queue.pop(), "first");
  EXPECT_EQ(queue.try_pop(), std::nullopt);
}

TEST(BoundedQueue, CloseWakesTheWaiterAfterTheLastItem) {
  BoundedQueue<int> queue(4);
  int sum = 0;
  std::thread reader([&] {
    while (auto item = queue.pop()) sum += *item;
  });
  for (int i = 1; i <= 3; ++i) ASSERT_TRUE(queue.try_push(int{i}));
  queue.close();
  reader.join();
  EXPECT_EQ(sum, 6);
  EXPECT_FALSE(queue.try_push(4));
}

}  // namespace
}  // namespace tuft
