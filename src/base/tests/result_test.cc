#include "base/result.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace tuft {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return invalid_argument("odd");
  return n / 2;
}

Result<int> quarter(int n) {
  TUFT_ASSIGN(const int h, half(n));
  return half(h);
}

Status require_even(int n) {
  TUFT_TRY(half(n));
  return {};
}

TEST(Result, AssignPassesTheValueOnAndReturnsTheError) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).error().message, "odd");
  EXPECT_TRUE(require_even(2).ok());
  EXPECT_EQ(require_even(3).error().code, ErrorCode::kInvalidArgument);
}

TEST(Result, HoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  const std::unique_ptr<int> value = std::move(result).value();
  EXPECT_EQ(*value, 7);
}

TEST(ResultDeathTest, ReadingTheValueOfAnErrorAborts) {
  EXPECT_DEATH(static_cast<void>(half(3).value()), "odd");
}

TEST(Error, EveryCodeHasADistinctName) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::kInternal); ++i) {
    for (int j = 0; j < i; ++j) {
      EXPECT_NE(error_code_name(static_cast<ErrorCode>(i)), error_code_name(static_cast<ErrorCode>(j)));
    }
  }
}

}  // namespace
}  // namespace tuft
