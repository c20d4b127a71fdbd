#include "control/api_keys.h"

#include <gtest/gtest.h>

namespace tuft::control {
namespace {

using Users = std::map<std::string, std::string>;

TEST(ApiKeys, SeveralKeysOfOneUser) {
  const ApiKeys keys(Users{{"tml-1", "alice"}, {"tml-2", "alice"}, {"tml-3", "bob"}});
  EXPECT_EQ(*keys.authenticate("tml-1"), UserId("alice"));
  EXPECT_EQ(*keys.authenticate("tml-2"), UserId("alice"));
  EXPECT_EQ(*keys.authenticate("tml-3"), UserId("bob"));
}

TEST(ApiKeys, MissingAndUnknownDiffer) {
  const ApiKeys keys(Users{{"tml-1", "alice"}});
  EXPECT_EQ(keys.authenticate("").error().code, ErrorCode::kUnauthenticated);
  for (const char* wrong : {"tml-", "tml-2", "tml-11", "TML-1", " tml-1"}) {
    EXPECT_EQ(keys.authenticate(wrong).error().code, ErrorCode::kPermissionDenied) << wrong;
  }
}

TEST(ApiKeys, AUserWithoutNameGetsNowhere) {
  const ApiKeys keys(Users{{"tml-1", ""}, {"", "alice"}});
  EXPECT_FALSE(keys.authenticate("tml-1").ok());
  EXPECT_FALSE(keys.authenticate("").ok());
}

TEST(ApiKeys, TheErrorDoesNotRepeatTheKey) {
  const ApiKeys keys(Users{{"tml-secret", "alice"}});
  EXPECT_EQ(keys.authenticate("tml-guess").error().message.find("guess"), std::string::npos);
}

}  // namespace
}  // namespace tuft::control
