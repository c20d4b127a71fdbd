#include "base/generator.h"

#include <memory>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace tuft {
namespace {

Generator<std::string> letters(std::string text, std::shared_ptr<int> held) {
  for (const char c : text) co_yield std::string(1, c) + std::to_string(held.use_count() > 0 ? 1 : 0);
}

Generator<int> failing() {
  co_yield 1;
  throw std::runtime_error("the end");
}

TEST(Generator, ProducesValuesUntilTheEnd) {
  Generator<std::string> values = letters("ab", std::make_shared<int>());
  ASSERT_TRUE(values.next());
  EXPECT_EQ(values.value(), "a1");
  ASSERT_TRUE(values.next());
  EXPECT_EQ(values.value(), "b1");
  EXPECT_FALSE(values.next());
  EXPECT_FALSE(values.next());
}

TEST(Generator, DestructionReleasesWhatTheCoroutineHolds) {
  const auto held = std::make_shared<int>();
  {
    Generator<std::string> values = letters("ab", held);
    ASSERT_TRUE(values.next());
    EXPECT_GT(held.use_count(), 1);
  }
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Generator, AnExceptionEndsIt) {
  Generator<int> values = failing();
  ASSERT_TRUE(values.next());
  EXPECT_THROW(values.next(), std::runtime_error);
  EXPECT_FALSE(values.next());
}

}  // namespace
}  // namespace tuft
