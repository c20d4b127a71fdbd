#include "bucket/settings.h"

#include <gtest/gtest.h>

namespace tuft::bucket {
namespace {

Settings usable() {
  Settings settings;
  settings.endpoint = "https://s3.example.com:9000";
  settings.name = "checkpoints";
  settings.prefix = "teams/tuft/";
  settings.credentials = {"an-id", "a-secret", "a-token"};
  settings.authorities = "-----BEGIN CERTIFICATE-----\n";
  settings.path_style = false;
  settings.timeout = 7 * kSecond;
  settings.part_bytes = 9 << 20;
  settings.cache_bytes = 5;
  return settings;
}

TEST(BucketSettings, PassThroughJsonUnchanged) {
  const auto passed = settings_from_json(to_json(usable()));
  ASSERT_TRUE(passed.ok()) << passed.error().message;
  EXPECT_EQ(to_json(*passed), to_json(usable()));
  EXPECT_EQ(passed->credentials.session_token, "a-token");
  EXPECT_EQ(passed->timeout, 7 * kSecond);
}

TEST(BucketSettings, OtherJsonIsRefusedWithoutShowingIt) {
  const auto refused = settings_from_json(R"({"secret_access_key": "a-secret"})");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message.find("a-secret"), std::string::npos);
}

TEST(BucketSettings, WhatCannotBeUsedIsRefusedByName) {
  const auto message_of = [](void (*change)(Settings&)) {
    Settings settings = usable();
    change(settings);
    const Status status = check(settings);
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_EQ(message_of([](Settings&) {}), "");
  for (const char* endpoint : {"", "s3.example.com", "ftp://x", "https://", "https://a/b", "https://me:pw@host",
                               "https://a b", "https://a\r\nX: y"}) {
    Settings settings = usable();
    settings.endpoint = endpoint;
    const Status status = check(settings);
    ASSERT_FALSE(status.ok()) << endpoint;
    EXPECT_TRUE(status.error().message.starts_with("endpoint ")) << status.error().message;
  }
  for (const char* prefix : {"tuft", "/tuft/", "a//b/", "a/../b/", "./", "a b/"}) {
    Settings settings = usable();
    settings.prefix = prefix;
    ASSERT_FALSE(check(settings).ok()) << prefix;
  }
  EXPECT_TRUE(message_of([](Settings& s) { s.name = "a/b"; }).starts_with("name "));
  EXPECT_TRUE(message_of([](Settings& s) { s.region = ""; }).starts_with("region "));
  EXPECT_TRUE(message_of([](Settings& s) { s.credentials.access_key_id = ""; }).starts_with("access_key_id "));
  EXPECT_TRUE(message_of([](Settings& s) { s.credentials.session_token = "a\nb"; }).starts_with("session_token "));
  EXPECT_TRUE(message_of([](Settings& s) { s.part_bytes = 1; }).starts_with("part_bytes "));
  const std::string hidden = message_of([](Settings& s) { s.credentials.secret_access_key = "se cret"; });
  EXPECT_TRUE(hidden.starts_with("secret_access_key ") && hidden.find("se cret") == std::string::npos) << hidden;
}

TEST(BucketSettings, CredentialsComeFromTheFormatOfTheAwsTools) {
  const auto found = parse_credentials(
      "# mine\n[other]\naws_access_key_id = no\nnot a pair\n[default]\naws_access_key_id = an-id\n"
      "aws_secret_access_key=a-secret\r\n");
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->access_key_id, "an-id");
  EXPECT_EQ(found->secret_access_key, "a-secret");
  EXPECT_EQ(found->session_token, "");
  EXPECT_FALSE(parse_credentials("[other]\naws_access_key_id = a\naws_secret_access_key = b\n").ok());
  const auto broken = parse_credentials("aws_access_key_id = a\nxsecretx\n");
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().message.find("xsecretx"), std::string::npos);
}

}  // namespace
}  // namespace tuft::bucket
