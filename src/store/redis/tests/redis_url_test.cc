#include "store/redis/redis_url.h"

#include <gtest/gtest.h>

namespace tuft::store {
namespace {

TEST(RedisUrl, NamesHostPortAndDatabase) {
  const auto url = parse_redis_url("redis://redis.example:7000/3");
  ASSERT_TRUE(url.ok()) << url.error().message;
  EXPECT_EQ(url->host, "redis.example");
  EXPECT_EQ(url->port, 7000);
  EXPECT_EQ(url->database, 3);
  EXPECT_EQ(url->name(), "Redis at redis.example:7000, database 3");
  EXPECT_EQ(parse_redis_url("redis://")->host, "localhost");
  EXPECT_EQ(parse_redis_url("redis://h")->port, 6379);
  EXPECT_EQ(parse_redis_url("redis://h/")->database, 0);
  EXPECT_EQ(parse_redis_url("redis://:7001")->port, 7001);
  EXPECT_EQ(parse_redis_url("redis://h?db=5")->database, 5);
  const auto ipv6 = parse_redis_url("redis://[::1]:7000/1");
  ASSERT_TRUE(ipv6.ok());
  EXPECT_EQ(ipv6->host, "::1");
  EXPECT_EQ(ipv6->port, 7000);
}

TEST(RedisUrl, NamesASocket) {
  const auto url = parse_redis_url("unix:///run/redis.sock?db=2");
  ASSERT_TRUE(url.ok()) << url.error().message;
  EXPECT_EQ(url->socket, "/run/redis.sock");
  EXPECT_EQ(url->database, 2);
}

TEST(RedisUrl, LoginIsDecodedAndNeverShown) {
  const auto url = parse_redis_url("redis://me:p%40ss%2Fword@h:1/2");
  ASSERT_TRUE(url.ok()) << url.error().message;
  EXPECT_EQ(url->user, "me");
  EXPECT_EQ(url->password, "p@ss/word");
  EXPECT_EQ(url->host, "h");
  EXPECT_EQ(url->name().find("ss"), std::string::npos);
  EXPECT_EQ(parse_redis_url("redis://:secret@h")->password, "secret");
  EXPECT_EQ(parse_redis_url("redis://:secret@h")->user, "");
  EXPECT_EQ(parse_redis_url("unix://:secret@/s")->password, "secret");
}

TEST(RedisUrl, ErrorsDoNotShowTheUrl) {
  for (const char* text : {"", "h:1", "http://hush", "rediss://hush", "redis://hush:0", "redis://hush:70000",
                           "redis://hush/x", "redis://hush?db=x", "redis://hush?timeout=1", "redis://a:%zz@hush",
                           "redis://hush@h", "unix://hush", "redis://[hush"}) {
    const auto url = parse_redis_url(text);
    ASSERT_FALSE(url.ok()) << text;
    EXPECT_EQ(url.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(url.error().message.find("hush"), std::string::npos) << url.error().message;
    EXPECT_NE(url.error().message.find("redis_url"), std::string::npos);
  }
}

}  // namespace
}  // namespace tuft::store
