#include "control/types/recent_by_user.h"

#include <string>

#include <gtest/gtest.h>

#include "control/sampling/sampler_tombstones.h"

namespace tuft::control {
namespace {

const UserId kFew("few");
const UserId kMany("many");

class Recent : public ::testing::Test {
 protected:
  // Whether the id is remembered as this user's.
  bool has(const std::string& id, const UserId& user) const { return recent_.find(RequestId(id), user) != nullptr; }
  void note(const std::string& id, const UserId& user, int value = 0) { recent_.note(RequestId(id), user, value); }

  RecentByUser<RequestId, int> recent_{10};
};

TEST_F(Recent, TheUserWithTheMostForgetsTheOldest) {
  for (int i = 0; i < 3; ++i) note("few" + std::to_string(i), kFew);
  for (int i = 0; i < 100; ++i) note("many" + std::to_string(i), kMany);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(has("few" + std::to_string(i), kFew));
  EXPECT_FALSE(has("many92", kMany));
  for (int i = 93; i < 100; ++i) EXPECT_TRUE(has("many" + std::to_string(i), kMany));
  for (int i = 3; i < 8; ++i) note("few" + std::to_string(i), kFew);
  EXPECT_TRUE(has("few3", kFew)) << "a user gets room from one who has more";
  EXPECT_TRUE(has("few7", kFew));
  EXPECT_TRUE(has("many99", kMany));
}

TEST_F(Recent, ValuesAreForTheirUserAndCanBeReplaced) {
  note("id", kFew, 1);
  note("id", kMany, 2);
  EXPECT_FALSE(has("id", kMany));
  EXPECT_EQ(*recent_.find(RequestId("id"), kFew), 1);
  note("id", kFew, 3);
  EXPECT_EQ(*recent_.find(RequestId("id"), kFew), 3);
}

TEST(SamplerTombstones, ManyOfAUserLetAnotherKnowTheirs) {
  SamplerTombstones tombstones;
  tombstones.note(SamplerId("first"), kFew, "reason");
  for (size_t i = 0; i < SamplerTombstones::kTombstonesMax + 10; ++i)
    tombstones.note(SamplerId(std::to_string(i)), kMany, "made room");
  EXPECT_EQ(tombstones.why(SamplerId("first"), kFew), "reason");
  EXPECT_EQ(tombstones.why(SamplerId("first"), kMany), "");
  EXPECT_EQ(tombstones.why(SamplerId("0"), kMany), "") << "the user with the most forgets the oldest";
}

}  // namespace
}  // namespace tuft::control
