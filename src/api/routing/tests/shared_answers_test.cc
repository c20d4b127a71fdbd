#include "api/routing/shared_answers.h"

#include <gtest/gtest.h>

namespace tuft::api {
namespace {

class SharedAnswersTest : public ::testing::Test {
 protected:
  void keep(const std::string& question, std::string body, Nanos took = 0, int status = 200) {
    Response answer = json_response(std::move(body), status);
    answers.keep(user, question, answer, now - took, now);
  }
  std::string found(const std::string& question, Nanos later = 0) {
    const std::optional<Response> answer = answers.find(user, question, now + later);
    return answer ? std::string(answer->bytes()) : "none";
  }

  SharedAnswers answers;
  control::UserId user{"alice"};
  Nanos now = 1000 * kSecond;
};

TEST_F(SharedAnswersTest, AnAnswerIsGivenAgainForASecond) {
  keep("q", "1");
  EXPECT_EQ(found("q"), "1");
  EXPECT_EQ(found("q", SharedAnswers::kAgeMin - 1), "1");
  EXPECT_EQ(found("q", SharedAnswers::kAgeMin), "none");
  EXPECT_EQ(found("another"), "none");
}

TEST_F(SharedAnswersTest, OneThatTookLongIsGivenForLonger) {
  keep("slow", "1", 20 * kMillisecond);
  EXPECT_EQ(found("slow", 2 * kSecond - 1), "1");
  EXPECT_EQ(found("slow", 2 * kSecond), "none");
  keep("slowest", "2", 10 * kSecond);
  EXPECT_EQ(found("slowest", SharedAnswers::kAgeMax - 1), "2");
  EXPECT_EQ(found("slowest", SharedAnswers::kAgeMax), "none");
}

TEST_F(SharedAnswersTest, ANewerAnswerReplacesTheOlder) {
  keep("q", "1");
  const size_t bytes = answers.bytes();
  now += 2 * kSecond;
  keep("q", "2");
  EXPECT_EQ(found("q"), "2");
  EXPECT_EQ(answers.bytes(), bytes);
}

TEST_F(SharedAnswersTest, FailuresAndLargeAnswersAreNotKept) {
  keep("failed", "{}", 0, 404);
  keep("large", std::string(SharedAnswers::kAnswerBytesMax, 'x'));
  EXPECT_EQ(found("failed"), "none");
  EXPECT_EQ(found("large"), "none");
  EXPECT_EQ(answers.bytes(), 0U);
}

TEST_F(SharedAnswersTest, TheOldestOfTheUserLeaveAtTheUsersLimits) {
  keep("alice's", "1");
  user = control::UserId("bob");
  EXPECT_EQ(found("alice's"), "none");
  for (int i = 0; i < 100; ++i) {
    keep(std::to_string(i), std::string(100'000, 'x'));
    ASSERT_LE(answers.bytes(), SharedAnswers::kBytesOfUserMax + 1000);
  }
  EXPECT_EQ(found("0"), "none");
  EXPECT_NE(found("99"), "none");
  for (int i = 0; i < 100; ++i) keep("small" + std::to_string(i), "x");
  EXPECT_EQ(found("99"), "none");
  EXPECT_EQ(found("small35"), "none");
  EXPECT_EQ(found("small36"), "x");
  user = control::UserId("alice");
  EXPECT_EQ(found("alice's"), "1");
}

TEST_F(SharedAnswersTest, AtTheLimitOfAllNothingIsKeptUntilOldOnesCanLeave) {
  const auto fill = [&](const std::string& name) {
    user = control::UserId(name);
    for (int i = 0; i < 4; ++i) keep(std::to_string(i), std::string(SharedAnswers::kAnswerBytesMax - 1024, 'x'));
  };
  for (int i = 0; i < 20; ++i) fill("user-" + std::to_string(i));
  EXPECT_LE(answers.bytes(), SharedAnswers::kBytesMax);
  EXPECT_EQ(found("3"), "none");
  user = control::UserId("user-0");
  EXPECT_NE(found("3"), "none") << "others do not push it out";
  now += SharedAnswers::kAgeMin;
  user = control::UserId("last");
  keep("q", std::string(SharedAnswers::kAnswerBytesMax - 1024, 'x'));
  EXPECT_NE(found("q"), "none");
  EXPECT_LE(answers.bytes(), SharedAnswers::kAnswerBytesMax);
}

}  // namespace
}  // namespace tuft::api
