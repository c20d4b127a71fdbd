#include "base/byte_account.h"

#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tuft {
namespace {

using Answer = ByteAccount::Answer;

TEST(ByteAccount, EnforcesTheLimitsPerHolderAndInTotal) {
  const auto account = std::make_shared<ByteAccount>();
  const ByteAccount::Most most{.each = 60, .all = 100};
  ByteAccount::Hold first = account->open("alice");
  EXPECT_EQ(first.grow_to(60, most), Answer::kTaken);
  ByteAccount::Hold second = account->open("alice");
  EXPECT_EQ(second.grow_to(1, most), Answer::kOverEach);
  EXPECT_EQ(second.bytes(), 0);
  ByteAccount::Hold others = account->open("bob");
  EXPECT_EQ(others.grow_to(41, most), Answer::kOverAll);
  EXPECT_EQ(others.grow_to(40, most), Answer::kTaken);
  EXPECT_EQ(account->total(), 100);
  first.shrink_to(10);
  EXPECT_EQ(account->held_by("alice"), 10);
  EXPECT_EQ(second.grow_to(50, most), Answer::kTaken);
}

TEST(ByteAccount, HoldGivesItsBytesBackOnce) {
  const auto account = std::make_shared<ByteAccount>();
  {
    ByteAccount::Hold hold = account->open("alice");
    ASSERT_EQ(hold.grow_to(5, {}), Answer::kTaken);
    EXPECT_EQ(hold.grow_to(3, {}), Answer::kTaken);
    EXPECT_EQ(hold.bytes(), 5);
    ByteAccount::Hold moved = std::move(hold);
    EXPECT_EQ(account->total(), 5);
    ByteAccount::Hold other = account->open("bob");
    ASSERT_EQ(other.grow_to(7, {}), Answer::kTaken);
    moved = std::move(other);
    EXPECT_EQ(account->held_by("alice"), 0);
    EXPECT_EQ(account->held_by("bob"), 7);
  }
  EXPECT_EQ(account->total(), 0);
}

TEST(ByteAccount, JoinedHoldsAreOne) {
  const auto account = std::make_shared<ByteAccount>();
  ByteAccount::Hold hold = account->open("alice");
  ASSERT_EQ(hold.grow_to(5, {}), Answer::kTaken);
  {
    ByteAccount::Hold more = account->open("alice");
    ASSERT_EQ(more.grow_to(3, {}), Answer::kTaken);
    hold.join(std::move(more));
  }
  EXPECT_EQ(hold.bytes(), 8);
  EXPECT_EQ(account->held_by("alice"), 8);
  hold.shrink_to(0);
  EXPECT_EQ(account->total(), 0);
}

TEST(ByteAccount, HoldMayOutliveOtherReferences) {
  auto account = std::make_shared<ByteAccount>();
  ByteAccount::Hold hold = account->open("alice");
  ASSERT_EQ(hold.grow_to(5, {}), Answer::kTaken);
  account.reset();
  hold.shrink_to(1);
  EXPECT_EQ(hold.bytes(), 1);
}

TEST(ByteAccount, ThreadsNeverExceedTheLimit) {
  const auto account = std::make_shared<ByteAccount>();
  constexpr ByteAccount::Most kMost{.each = 30, .all = 50};
  std::vector<std::thread> threads;
  for (const char* who : {"a", "a", "b", "b"}) {
    threads.emplace_back([&account, who, kMost] {
      for (int i = 0; i < 2000; ++i) {
        ByteAccount::Hold hold = account->open(who);
        if (hold.grow_to(20, kMost) == Answer::kTaken) {
          EXPECT_LE(account->held_by(who), 30);
          EXPECT_LE(account->total(), 50);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(account->total(), 0);
  EXPECT_EQ(account->held_by("a"), 0);
}

}  // namespace
}  // namespace tuft
