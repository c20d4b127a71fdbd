#include "control/accounts/api_keys.h"

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

TEST(ApiKeys, AKeyOfAUserWithoutNameIsRefused) {
  const ApiKeys keys(Users{{"tml-1", ""}, {"", "alice"}});
  EXPECT_FALSE(keys.authenticate("tml-1").ok());
  EXPECT_FALSE(keys.authenticate("").ok());
}

TEST(ApiKeys, AKeyIsFoundByItsHash) {
  const std::string key = new_key();
  const std::string other = new_key();
  EXPECT_NE(key, other);
  EXPECT_EQ(key.rfind("tml-", 0), 0U);
  EXPECT_EQ(key.size(), 4U + 64U);
  const std::string hash = hash_key(key);
  EXPECT_NE(hash, hash_key(key)) << "each hash has a salt of its own";
  const ApiKeys keys(Users{{hash, "alice"}, {hash_key(other), "bob"}, {"tml-plain", "eve"}});
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(*keys.authenticate(key), UserId("alice"));
    EXPECT_EQ(*keys.authenticate(other), UserId("bob"));
    EXPECT_EQ(*keys.authenticate("tml-plain"), UserId("eve"));
  }
  EXPECT_FALSE(keys.authenticate(hash).ok()) << "who reads the hash has no key";
  EXPECT_FALSE(keys.authenticate(new_key()).ok());
}

TEST(ApiKeys, TheHashIsSha256OfSaltAndKey) {
  // The output of: printf '\x00\xfftml-key' | sha256sum
  const ApiKeys keys(Users{{"sha256:00ff:22c814ddf80cf808a78369a1a69948df7aba63eebdf14d0fb74b9c3298a639ce", "alice"}});
  EXPECT_TRUE(keys.authenticate("tml-key").ok());
}

TEST(ApiKeys, ARemovedKeyIsRefused) {
  const std::string key = new_key();
  ApiKeys keys(Users{{hash_key(key), "alice"}, {"tml-1", "bob"}});
  ASSERT_TRUE(keys.authenticate(key).ok());
  ASSERT_TRUE(keys.authenticate("tml-1").ok());
  keys.replace(Users{{"tml-2", "bob"}});
  EXPECT_FALSE(keys.authenticate(key).ok());
  EXPECT_FALSE(keys.authenticate("tml-1").ok());
  EXPECT_EQ(*keys.authenticate("tml-2"), UserId("bob"));
}

TEST(ApiKeys, TheErrorDoesNotRepeatTheKey) {
  const ApiKeys keys(Users{{"tml-secret", "alice"}});
  EXPECT_EQ(keys.authenticate("tml-guess").error().message.find("guess"), std::string::npos);
}

}  // namespace
}  // namespace tuft::control
