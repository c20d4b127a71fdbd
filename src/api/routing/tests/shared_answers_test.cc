#include "api/routing/shared_answers.h"

#include <gtest/gtest.h>

namespace tuft::api {
namespace {

class SharedAnswersTest : public ::testing::Test {
 protected:
  void keep(const std::string& question, std::string body, Nanos took = 0, int status = 200) {
    Response answer = json_response(std::move(body), status);
    answers.keep(question, answer, now - took, now);
  }
  std::string found(const std::string& question, Nanos later = 0) {
    const std::optional<Response> answer = answers.find(question, now + later);
    return answer ? std::string(answer->bytes()) : "none";
  }

  SharedAnswers answers;
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

TEST_F(SharedAnswersTest, TheOldestLeaveAtTheLimitAndOldOnesAtTheNextAnswer) {
  for (int i = 0; i < 100; ++i) {
    keep(std::to_string(i), std::string(100'000, 'x'));
    ASSERT_LE(answers.bytes(), SharedAnswers::kBytesMax);
  }
  EXPECT_EQ(found("0"), "none");
  EXPECT_NE(found("99"), "none");
  now += SharedAnswers::kAgeMax;
  keep("last", "1");
  EXPECT_LT(answers.bytes(), 1000U);
}

}  // namespace
}  // namespace tuft::api
