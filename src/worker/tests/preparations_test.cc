#include "worker/preparations.h"

#include <future>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tuft::worker {
namespace {

// Tasks note their names and whether they were told to stop. The first one waits for open().
class PreparationsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::promise<void> begun;
    preparations_.post("first", [&, opened = gate_.get_future().share()](bool) {
      begun.set_value();
      opened.wait();
    });
    begun.get_future().wait();
  }
  bool post(const std::string& tenant, const std::string& name) {
    return preparations_.post(tenant, [this, name](bool stopping) { ran_.push_back(stopping ? name + "!" : name); });
  }
  void open() { gate_.set_value(); }

  std::promise<void> gate_;
  std::vector<std::string> ran_;
  Preparations preparations_{3};
};

TEST_F(PreparationsTest, TenantsTakeTurns) {
  EXPECT_TRUE(post("a", "a1"));
  EXPECT_TRUE(post("a", "a2"));
  EXPECT_TRUE(post("b", "b1"));
  EXPECT_FALSE(post("b", "b2")) << "the queue is full";
  open();
  preparations_.stop();
  for (std::string& name : ran_) name.resize(2);  // stop() may have come before its turn
  EXPECT_EQ(ran_, (std::vector<std::string>{"a1", "b1", "a2"}));
}

TEST_F(PreparationsTest, WhatWaitsAtTheEndIsCalledOnceAndNothingAfterIt) {
  EXPECT_TRUE(post("a", "a1"));
  const auto stopped = std::async(std::launch::async, [&] { preparations_.stop(); });
  open();
  stopped.wait();
  ASSERT_EQ(ran_.size(), 1U);
  EXPECT_TRUE(ran_[0] == "a1" || ran_[0] == "a1!") << ran_[0];
  EXPECT_FALSE(post("a", "a2"));
  EXPECT_EQ(ran_.size(), 1U);
}

}  // namespace
}  // namespace tuft::worker
